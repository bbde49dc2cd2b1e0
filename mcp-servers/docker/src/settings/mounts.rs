//! Directories of the host that the operator gives to every container.

use std::path::{Component, Path};

use anyhow::{Context, ensure};

/// Mounts separated by commas, as the engine takes them. Without `:rw` a mount is read-only.
pub(super) fn parse(text: &str, socket: &str) -> anyhow::Result<Vec<String>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| mount(part, socket)).collect()
}

fn mount(text: &str, socket: &str) -> anyhow::Result<String> {
    let invalid = || format!("DOCKER_MOUNTS has {text:?}, which is not SOURCE:TARGET with absolute paths, or with :rw");
    let mut parts = text.split(':');
    let (source, target) = parts.next().zip(parts.next()).with_context(invalid)?;
    let mode = parts.next().unwrap_or("ro");
    let valid = is_plain(source) && is_plain(target) && target != "/" && ["ro", "rw"].contains(&mode);
    ensure!(valid && parts.next().is_none(), invalid());
    ensure!(
        !Path::new(socket).starts_with(source),
        "DOCKER_MOUNTS would give the engine's socket to every container: {text:?}"
    );
    let reserved = ["/proc", "/sys", "/dev", "/run/gavel", "/var/lib/gavel"];
    ensure!(
        !reserved.iter().any(|path| Path::new(target).starts_with(path)),
        "DOCKER_MOUNTS has a target that is reserved: {text:?}"
    );
    Ok(format!("{source}:{target}:{mode}"))
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
    fn mounts_are_read_only_and_never_the_socket() {
        let parse = |text| parse(text, "/run/docker.sock");
        assert_eq!(
            parse("/a:/b, /c:/d:rw").expect("mounts"),
            ["/a:/b:ro".to_owned(), "/c:/d:rw".to_owned()]
        );
        for text in [
            "/a",
            "a:/b",
            "/a:b",
            "/a:/b:x",
            "/a:/b:ro:z",
            "/a/..:/b",
            "/run:/x",
            "/:/host",
            "/a:/proc",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
