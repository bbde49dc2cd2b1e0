//! The images that containers may be created from.

use anyhow::{Context, ensure};
use gavel_mcp_base::text;
use globset::{GlobBuilder, GlobMatcher};

/// Patterns of permitted images.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    patterns: Vec<GlobMatcher>,
    /// For models.
    pub(crate) text: String,
}

impl Images {
    /// Patterns separated by commas. A `*` does not cross a slash; `**` does.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let patterns = parts.clone().map(pattern).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!patterns.is_empty(), "DOCKER_IMAGES names no image");
        Ok(Self {
            patterns,
            text: text::list(parts),
        })
    }

    /// Whether a container may be created from the image.
    pub(crate) fn permit(&self, image: &Reference) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(&image.0))
    }
}

fn pattern(text: &str) -> anyhow::Result<GlobMatcher> {
    // Without a tag, every tag. A ** at the end matches tags too.
    let whole = match has_version(text) || text.ends_with("**") {
        true => text.to_owned(),
        false => format!("{text}{{:*,@*}}"),
    };
    let glob = GlobBuilder::new(&whole).literal_separator(true).build();
    let glob = glob.with_context(|| format!("DOCKER_IMAGES has an invalid pattern, {text:?}"))?;
    Ok(glob.compile_matcher())
}

/// Whether a name has a tag or a digest. The colon of a registry's port is no tag.
fn has_version(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.contains(':') || name.contains('@')
}

/// The name of an image, with its tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference(String);

impl Reference {
    const MAX: usize = 255;

    /// A name such as `docker.io/library/python:3.13`. Without a tag it is that of `latest`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@".contains(c));
        let parts = text
            .split('/')
            .all(|part| !part.is_empty() && part != ".." && part != ".");
        if !starts || !plain || !parts || text.len() > Self::MAX {
            return None;
        }
        Some(Self(match has_version(text) {
            true => text.to_owned(),
            false => format!("{text}:latest"),
        }))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(patterns: &str, image: &str) -> bool {
        let image = Reference::parse(image).expect("a name");
        Images::parse(patterns).expect("patterns").permit(&image)
    }

    #[test]
    fn a_pattern_permits_what_it_names_and_nothing_else() {
        for (patterns, image, is_permitted) in [
            ("python:3.*", "python:3.13", true),
            ("python:3.*", "python", false),
            ("python:3.*", "evil/python:3.13", false),
            ("python", "python", true),
            ("python", "python:2", true),
            ("python", "python@sha256:00", true),
            ("python", "pythonx", false),
            ("localhost/gavel/*", "localhost/gavel/a:1", true),
            ("localhost/gavel/*", "localhost/gavel/a/b:1", false),
            ("localhost/**", "localhost/gavel/a/b:1", true),
            ("registry:5000/a", "registry:5000/a:7", true),
            ("a, b", "b", true),
        ] {
            assert_eq!(permits(patterns, image), is_permitted, "{patterns} {image}");
        }
    }

    #[test]
    fn what_is_not_a_name_is_no_image() {
        for text in ["", "-x", "/x", "a//b", "a/../b", "a b", "a\nb", "a;b", "../x"] {
            assert_eq!(Reference::parse(text), None, "{text}");
        }
        assert!(Images::parse("a[").is_err());
        assert!(Images::parse(" , ").is_err());
    }
}
