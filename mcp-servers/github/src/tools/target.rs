//! What a call names: a repository, a pull request or issue, a path, a branch. Each becomes part of an address, so each
//! is valid or refused.

use gavel_mcp_base::{ToolError, invalid};
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::github::GitHub;

const MAX_PATH: usize = 4096;

/// A repository.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct Repo {
    /// The user or organization that owns the repository.
    #[schemars(length(min = 1, max = 100))]
    pub(super) owner: String,
    /// The name of the repository, without its owner.
    #[schemars(length(min = 1, max = 100))]
    pub(super) repo: String,
}

impl Repo {
    /// The same, if both names can be those of a repository.
    pub(super) fn checked(self) -> Result<Self, ToolError> {
        let plain = |each: char| each.is_ascii_alphanumeric() || "-_".contains(each);
        if !self.owner.chars().all(plain) {
            return Err(invalid("owner", "is not a user or an organization, such as octocat"));
        }
        match is_name(&self.repo) {
            true => Ok(self),
            false => {
                let rule = "is not the name of a repository, such as hello-world, without its owner";
                Err(invalid("repo", rule))
            }
        }
    }

    /// An address below the repository.
    pub(super) fn url(&self, github: &GitHub, rest: &[&str]) -> Url {
        github.url(&[&["repos", &self.owner, &self.repo], rest].concat())
    }
}

/// Whether a repository can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |each: char| each.is_ascii_alphanumeric() || "._-".contains(each);
    !name.is_empty() && name.chars().all(plain) && name != "." && name != ".." && !name.ends_with(".git")
}

/// The longest name of a branch, a tag or a commit.
pub(super) const MAX_REF: usize = 255;

/// A branch, a tag or a commit.
pub(super) fn reference(name: &str, reference: String) -> Result<String, ToolError> {
    let forbidden = |each: char| each.is_control() || each.is_whitespace() || "~^:?*[\\".contains(each);
    let mut segments = reference.split('/');
    if reference.contains(forbidden)
        || reference.contains("..")
        || !segments.all(|segment| !segment.is_empty() && segment != ".")
    {
        return Err(invalid(name, "is not a branch, a tag or a commit"));
    }
    Ok(reference)
}

/// The segments of a path in a repository.
pub(super) fn path(path: &str) -> Result<Option<Vec<String>>, ToolError> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(None);
    }
    let segments: Vec<_> = path.split('/').map(str::to_owned).collect();
    let plain = |segment: &String| !matches!(segment.as_str(), "" | "." | "..") && !segment.contains(char::is_control);
    if path.len() > MAX_PATH || !segments.iter().all(plain) {
        let rule = "has to be relative to the repository's root, such as src/main.rs, without `.` and `..`";
        return Err(invalid("path", rule));
    }
    Ok(Some(segments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(owner: &str, repo: &str) -> Repo {
        let (owner, repo) = (owner.to_owned(), repo.to_owned());
        Repo { owner, repo }
    }

    #[test]
    fn nothing_that_changes_the_address_is_accepted() {
        for (owner, name) in [
            ("a/b", "c"),
            ("..", "c"),
            ("a", ".."),
            ("a", "b/c"),
            ("a", "b?c"),
            ("a", "."),
            ("a b", "c"),
            ("a", "b#c"),
            ("a", "%2e%2e"),
            ("a", "b.git"),
        ] {
            assert!(repo(owner, name).checked().is_err(), "{owner}/{name}");
        }
        assert!(repo("acme-1", "dates.rs_2").checked().is_ok());
        for path_given in ["/x", "a//b", "../x", "a/./b", "a/..", "a\nb"] {
            assert!(path(path_given).is_err(), "{path_given}");
        }
        let segments = path("a b/ü?.rs/").expect("a path");
        assert_eq!(segments, Some(vec!["a b".to_owned(), "ü?.rs".to_owned()]));
        assert_eq!(path("/").expect("the root"), None);
        for given in ["a..b", "a b", "a:b", "/a", "a/", "./a", "a^"] {
            assert!(reference("ref", given.to_owned()).is_err(), "{given}");
        }
        assert!(reference("ref", "feature/x#1".to_owned()).is_ok());
    }
}
