//! Control groups: the memory and the processes of one command as a whole, where this process may make groups.

mod places;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use crate::job::Limits;
use places::{Kind, Place};

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
