//! Where control groups are mounted, and which of them this process is in.

use std::path::{Path, PathBuf};

/// What the groups of a mount limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Version 1, processes.
    Pids,
    /// Version 1, memory.
    Memory,
    /// Version 2, both.
    Unified,
}

/// Directories in which a group may be made, the best first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) paths: Vec<PathBuf>,
}

impl Place {
    /// All places, by the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub(super) fn all(mounts: &str, own: &str) -> Vec<Self> {
        mounts.lines().flat_map(|line| of_mount(line, own)).collect()
    }
}

fn of_mount(line: &str, own: &str) -> Vec<Place> {
    let Some((left, right)) = line.split_once(" - ") else {
        return Vec::new();
    };
    let (left, right): (Vec<_>, Vec<_>) = (left.split(' ').collect(), right.split(' ').collect());
    let (Some(root), Some(mount)) = (left.get(3), left.get(4)) else {
        return Vec::new();
    };
    let options = right.get(2).copied().unwrap_or_default();
    let has = |controller: &str| options.split(',').any(|option| option == controller);
    let kinds = match right.first().copied() {
        Some("cgroup2") => vec![(Kind::Unified, "")],
        Some("cgroup") => [(Kind::Pids, "pids"), (Kind::Memory, "memory")]
            .into_iter()
            .filter(|(_, name)| has(name))
            .collect(),
        _ => Vec::new(),
    };
    let place = |(kind, controller): (Kind, &str)| {
        let own = own_group(own, controller)?;
        // A mount can begin at a group below the first one.
        let inside = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        let mount = Path::new(mount);
        let own: PathBuf = mount.join(inside).components().collect();
        let mut paths = vec![own.clone()];
        // With version 2, a group with processes has no groups with limits in it: beside it, or at the top.
        if kind == Kind::Unified && own != mount {
            paths.extend(own.parent().map(Path::to_owned));
        }
        paths.push(mount.to_owned());
        paths.dedup();
        Some(Place { kind, paths })
    };
    kinds.into_iter().filter_map(place).collect()
}

/// The group of this process, in the hierarchy of the controller.
fn own_group<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(found: &Place) -> Vec<&str> {
        found.paths.iter().filter_map(|path| path.to_str()).collect()
    }

    #[test]
    fn groups_of_version_1_are_made_in_the_own_group() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      32 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let found = Place::all(mounts, "8:pids:/\n4:memory:/service/x\n1:cpu,cpuacct:/\n0::/\n");
        let kinds: Vec<_> = found.iter().map(|place| place.kind).collect();
        assert_eq!(kinds, [Kind::Memory, Kind::Pids]);
        assert_eq!(
            paths(&found[0]),
            ["/sys/fs/cgroup/memory/service/x", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(paths(&found[1]), ["/sys/fs/cgroup/pids"]);
    }

    #[test]
    fn groups_of_version_2_are_made_beside_the_own_group_too() {
        let mounts = "29 23 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Place::all(mounts, "0::/system.slice/gavel.service\n");
        assert_eq!(
            paths(&found[0]),
            [
                "/sys/fs/cgroup/system.slice/gavel.service",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup"
            ]
        );
        // A container whose mount begins at its own group.
        let found = Place::all(
            "29 23 0:25 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
            "0::/docker/a\n",
        );
        assert_eq!(paths(&found[0]), ["/sys/fs/cgroup"]);
        assert_eq!(Place::all("1 2 0:3 / / rw - ext4 /dev/vda rw\nbroken\n", "0::/\n"), []);
    }
}
