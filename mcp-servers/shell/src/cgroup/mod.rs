//! Control groups: the memory and the processes of one command as a whole, where this process may make groups.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use crate::job::Limits;

/// The group of one command: one directory with version 2, two with version 1.
#[derive(Debug)]
pub(crate) struct Group(Vec<Member>);

#[derive(Debug)]
struct Member {
    path: PathBuf,
    kind: Kind,
}

const PREFIX: &str = "gavel-shell-";
const PROCESSES: &str = "cgroup.procs";

/// The name of the group of a call: other servers, with directories of their own, may have the same keys.
pub(crate) fn name(call: &Path) -> String {
    hex::encode(Sha256::digest(call.as_os_str().as_bytes()))[..32].to_owned()
}

impl Group {
    /// Makes the group, with its limits.
    pub(crate) fn create(name: &str, limits: Limits) -> anyhow::Result<Self> {
        let places = Place::all(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        for choice in [&[Kind::Unified][..], &[Kind::Pids, Kind::Memory]] {
            let mut group = Self(Vec::new());
            let made = choice.iter().all(|kind| {
                let mut paths = places
                    .iter()
                    .filter(|place| place.kind == *kind)
                    .flat_map(|place| &place.paths);
                let made = paths.find_map(|path| Member::create(path, *kind, name, limits).ok());
                made.map(|member| group.0.push(member)).is_some()
            });
            if made {
                return Ok(group);
            }
            group.remove();
        }
        anyhow::bail!("no control group for memory and processes can be made")
    }

    /// The group of a command whose supervisor did not remove it, if there is one.
    pub(crate) fn left(name: &str) -> Option<Self> {
        let places = Place::all(&read("/proc/self/mountinfo").ok()?, &read("/proc/self/cgroup").ok()?);
        let members = places.iter().flat_map(|place| {
            let paths = place.paths.iter().map(|path| path.join(format!("{PREFIX}{name}")));
            paths
                .filter(|path| path.is_dir())
                .map(|path| Member { path, kind: place.kind })
        });
        let members: Vec<_> = members.collect();
        (!members.is_empty()).then_some(Self(members))
    }

    /// Whether groups can be made, and a process can be moved into one. Returns the version.
    pub(crate) fn check(name: &str, limits: Limits) -> anyhow::Result<u8> {
        let group = Self::create(name, limits)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read line"])
            .env_clear()
            .stdin(Stdio::piped())
            .spawn()
            .context("no process can be started")?;
        let id = i32::try_from(child.id())?;
        let joined = group
            .0
            .iter()
            .try_for_each(|member| fs::write(member.path.join(PROCESSES), id.to_string()));
        let is_inside = group.processes().contains(&id);
        let _ = child.kill();
        child.wait()?;
        let version = if group.0.len() == 1 { 2 } else { 1 };
        group.remove();
        joined.context("a process cannot be moved into a control group")?;
        ensure!(is_inside, "a process was not moved into a control group");
        Ok(version)
    }

    /// The directories, for [`join`].
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|member| &*member.path)
    }

    /// The processes of the group.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let lists = self
            .0
            .iter()
            .filter_map(|member| read(member.path.join(PROCESSES)).ok());
        lists
            .flat_map(|list| list.lines().filter_map(|id| id.parse().ok()).collect::<Vec<i32>>())
            .collect()
    }

    /// No process of the group can fork any more. With version 2 all are killed as well.
    pub(crate) fn close(&self) {
        for member in &self.0 {
            let _ = match member.kind {
                Kind::Pids => fs::write(member.path.join("pids.max"), "0"),
                Kind::Memory => Ok(()),
                Kind::Unified => fs::write(member.path.join("pids.max"), "0")
                    .and_then(|()| fs::write(member.path.join("cgroup.kill"), "1")),
            };
        }
    }

    /// Removes the group. A process that was killed can be in it for a moment longer.
    pub(crate) fn remove(self) {
        for member in self.0 {
            for _ in 0..100 {
                match fs::remove_dir(&member.path) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Moves this process into a group.
pub(crate) fn join(path: &Path) -> io::Result<()> {
    fs::write(path.join(PROCESSES), "0")
}

impl Member {
    fn create(parent: &Path, kind: Kind, name: &str, limits: Limits) -> io::Result<Self> {
        let path = parent.join(format!("{PREFIX}{name}"));
        if kind == Kind::Unified {
            // Fails if it is on already, or if the parent has processes of its own.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory +pids");
        }
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let member = Self { path, kind };
        match member.limit(limits) {
            Ok(()) => Ok(member),
            Err(error) => {
                let _ = fs::remove_dir(&member.path);
                Err(error)
            }
        }
    }

    fn limit(&self, limits: Limits) -> io::Result<()> {
        let bytes = (limits.memory << 20).to_string();
        let set = |file: &str, value: &str| fs::write(self.path.join(file), value);
        // There is no such file without swap.
        let optional = |file: &str, value: &str| match self.path.join(file).exists() {
            true => set(file, value),
            false => Ok(()),
        };
        match self.kind {
            Kind::Pids => set("pids.max", &limits.pids.to_string()),
            Kind::Memory => {
                set("memory.limit_in_bytes", &bytes)?;
                optional("memory.memsw.limit_in_bytes", &bytes)
            }
            Kind::Unified => {
                set("pids.max", &limits.pids.to_string())?;
                set("memory.max", &bytes)?;
                optional("memory.swap.max", "0")
            }
        }
    }
}

fn read(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

// Where control groups are mounted, and which of them this process is in.

/// What the groups of a mount limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Version 1, processes.
    Pids,
    /// Version 1, memory.
    Memory,
    /// Version 2, both.
    Unified,
}

/// Directories in which a group may be made, the best first.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    kind: Kind,
    paths: Vec<PathBuf>,
}

impl Place {
    /// All places, by the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    fn all(mounts: &str, own: &str) -> Vec<Self> {
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
mod places_tests {
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
