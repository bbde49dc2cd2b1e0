//! Combines the options; rejects those that are invalid or unsafe.

use std::collections::HashSet;
use std::fs;
use std::iter::once;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};
use gavel_mcp_base::settings::{self, given};
use gavel_mcp_base::{existing, text};
use globset::{GlobBuilder, GlobMatcher};

use crate::args::Args;

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The path of the engine's socket.
    pub(crate) socket: String,
    pub(crate) images: Images,
    pub(crate) network: String,
    /// In the form of the engine: `/source:/target:ro`.
    pub(crate) mounts: Vec<String>,
    /// Whether a missing image is pulled.
    pub(crate) pulls: bool,
    pub(crate) limits: Limits,
}

/// The limits of a container, and of their number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) memory_mb: u32,
    pub(crate) cpus: u32,
    pub(crate) pids: u32,
    pub(crate) per_session: usize,
    pub(crate) in_all: usize,
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let socket = socket(given(&args.host))?;
        let mounts = parse_mounts(given(&args.mounts).unwrap_or_default())?;
        check_mounts(&mounts, &socket)?;
        let images = Images::parse(given(&args.images).context(
            "DOCKER_IMAGES is missing: set the images that containers may be created from, such as \
             docker.io/library/python:3.*",
        )?)?;
        let count = |name, text, unset, allowed| settings::number::<u32>(name, text, unset, allowed);
        let limits = Limits {
            memory_mb: count("DOCKER_MEMORY_MB", &args.memory_mb, 2048, 64..=1_048_576)?,
            cpus: count("DOCKER_CPUS", &args.cpus, 2, 1..=256)?,
            pids: count("DOCKER_PIDS", &args.pids, 512, 32..=32_768)?,
            per_session: count("DOCKER_SESSION_CONTAINERS", &args.session_containers, 5, 1..=1000)? as usize,
            in_all: count("DOCKER_CONTAINERS", &args.containers, 20, 1..=1000)? as usize,
        };
        let pulls = [("never", false), ("missing", true)];
        Ok(Self {
            socket,
            images,
            network: network(given(&args.network).unwrap_or("none"))?,
            mounts,
            pulls: settings::choice("DOCKER_PULL", &args.pull, &pulls)?,
            limits,
        })
    }
}

/// The path of the socket. An engine over TCP is refused: it is access to its host for all who reach the port.
pub(crate) fn socket(host: Option<&str>) -> anyhow::Result<String> {
    let host = host.context("DOCKER_HOST is missing: set the engine's socket, such as unix:///var/run/docker.sock")?;
    let path = host
        .strip_prefix("unix://")
        .filter(|path| path.starts_with('/') && path.len() > 1);
    let path = path.context("DOCKER_HOST must be a unix socket, such as unix:///var/run/docker.sock")?;
    Ok(path.to_owned())
}

/// `none`, `bridge`, `host`, or a name. The network of another container is not a network of the operator.
fn network(name: &str) -> anyhow::Result<String> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    ensure!(
        plain,
        "DOCKER_NETWORK must be none, bridge, host, or the name of a network"
    );
    Ok(name.to_owned())
}

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
mod images_tests {
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

// Directories of the host that the operator gives to every container.

/// Mounts separated by commas, as the engine takes them. Without `:rw` a mount is read-only.
fn parse_mounts(text: &str) -> anyhow::Result<Vec<String>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(mount).collect()
}

fn mount(text: &str) -> anyhow::Result<String> {
    let invalid = || format!("DOCKER_MOUNTS has {text:?}, which is not SOURCE:TARGET with absolute paths, or with :rw");
    let mut parts = text.split(':');
    let (source, target) = parts.next().zip(parts.next()).with_context(invalid)?;
    let mode = parts.next().unwrap_or("ro");
    let valid = is_plain_path(source) && is_plain_path(target) && target != "/" && ["ro", "rw"].contains(&mode);
    ensure!(valid && parts.next().is_none(), invalid());
    let reserved = ["/proc", "/sys", "/dev", "/run/gavel", "/var/lib/gavel"];
    ensure!(
        !reserved.iter().any(|path| Path::new(target).starts_with(path)),
        "DOCKER_MOUNTS has a target that is reserved: {text:?}"
    );
    Ok(format!("{source}:{target}:{mode}"))
}

/// Fails if a mount leads to the engine's socket.
pub(crate) fn check_mounts(mounts: &[String], socket: &str) -> anyhow::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for mount in mounts {
        let source = mount.split(':').next().unwrap_or_default();
        ensure!(
            !leads_to(Path::new(source), Path::new(socket), &table),
            "DOCKER_MOUNTS would give the engine's socket to every container: {mount:?}"
        );
    }
    Ok(())
}

/// Whether the socket is the source, or below it: by its path, by a link in one of both paths, or because something
/// above the socket is mounted there too.
fn leads_to(source: &Path, socket: &Path, table: &str) -> bool {
    let (real, real_socket) = (existing(source), existing(socket));
    if socket.starts_with(source) || real_socket.starts_with(&real) {
        return true;
    }
    let id = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let above: HashSet<_> = real_socket.ancestors().filter_map(id).collect();
    // Spaces in a path of the table are octal.
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    let inside = points.filter(|point| point.starts_with(&real));
    once(real.clone())
        .chain(inside)
        .any(|path| id(&path).is_some_and(|id| above.contains(&id)))
}

/// An absolute path without `.` and `..`.
fn is_plain_path(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod mounts_tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_and_their_form_is_checked() {
        assert_eq!(
            parse_mounts("/a:/b, /c:/d:rw").expect("mounts"),
            ["/a:/b:ro".to_owned(), "/c:/d:rw".to_owned()]
        );
        for text in ["/a", "a:/b", "/a:b", "/a:/b:x", "/a:/b:ro:z", "/a/..:/b", "/a:/proc"] {
            assert!(parse_mounts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_mount_leads_to_the_socket() {
        use std::os::unix::fs::symlink;
        let temporary = tempfile::tempdir().expect("a directory");
        let at = |path: &str| temporary.path().join(path);
        for path in ["run/engine", "srv/other mount", "srv/cache"] {
            fs::create_dir_all(at(path)).expect("a directory");
        }
        std::os::unix::net::UnixListener::bind(at("run/engine/s")).expect("a socket");
        symlink(at("run"), at("link")).expect("a link");
        symlink(at("run/engine/s"), at("srv/s")).expect("a link");
        // Another name of the socket is what another mount of it would be.
        fs::hard_link(at("run/engine/s"), at("srv/same")).expect("a link");
        let mounted = format!("1 2 0:3 / {} rw - x y z\n", at("srv/other\\040mount").display());
        let leads = |source: &str, socket: &str, table: &str| leads_to(&at(source), &at(socket), table);
        for source in [
            "run",
            "run/engine",
            "run/engine/s",
            "link",
            "link/engine",
            "srv/s",
            "srv/same",
            "",
        ] {
            assert!(leads(source, "run/engine/s", ""), "{source}");
            assert!(leads(source, "link/engine/s", ""), "{source} by a link");
        }
        // Before the engine has started, too.
        assert!(leads("run", "link/engine/later", "") && leads("link", "run/later/s", ""));
        for source in ["srv/cache", "srv/none"] {
            assert!(!leads(source, "link/engine/s", &mounted), "{source}");
        }
        assert!(!leads("srv", "run/engine/s", &mounted));
        fs::remove_dir(at("srv/other mount")).expect("removed");
        symlink(at("run"), at("srv/other mount")).expect("a link");
        assert!(leads("srv", "run/engine/s", &mounted), "a mount below the source");
    }
}
