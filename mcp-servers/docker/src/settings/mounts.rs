//! Directories of the host that the operator gives to every container.

use std::collections::HashSet;
use std::fs;
use std::iter::once;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, ensure};
use gavel_mcp_base::existing;

/// Mounts separated by commas, as the engine takes them. Without `:rw` a mount is read-only.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<String>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(mount).collect()
}

fn mount(text: &str) -> anyhow::Result<String> {
    let invalid = || format!("DOCKER_MOUNTS has {text:?}, which is not SOURCE:TARGET with absolute paths, or with :rw");
    let mut parts = text.split(':');
    let (source, target) = parts.next().zip(parts.next()).with_context(invalid)?;
    let mode = parts.next().unwrap_or("ro");
    let valid = is_plain(source) && is_plain(target) && target != "/" && ["ro", "rw"].contains(&mode);
    ensure!(valid && parts.next().is_none(), invalid());
    let reserved = ["/proc", "/sys", "/dev", "/run/gavel", "/var/lib/gavel"];
    ensure!(
        !reserved.iter().any(|path| Path::new(target).starts_with(path)),
        "DOCKER_MOUNTS has a target that is reserved: {text:?}"
    );
    Ok(format!("{source}:{target}:{mode}"))
}

/// Fails if a mount leads to the engine's socket.
pub(crate) fn check(mounts: &[String], socket: &str) -> anyhow::Result<()> {
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
fn is_plain(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_and_their_form_is_checked() {
        assert_eq!(
            parse("/a:/b, /c:/d:rw").expect("mounts"),
            ["/a:/b:ro".to_owned(), "/c:/d:rw".to_owned()]
        );
        for text in ["/a", "a:/b", "/a:b", "/a:/b:x", "/a:/b:ro:z", "/a/..:/b", "/a:/proc"] {
            assert!(parse(text).is_err(), "{text}");
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
