//! The processes of this machine, as `/proc` shows them, and how those of a command are found and ended.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::cgroup::Group;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: i32,
    parent: i32,
    /// The real user.
    pub(crate) user: u32,
    pub(crate) threads: u64,
    is_dead: bool,
}

/// All processes that can be seen.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: i32| parse(id, &fs::read_to_string(format!("/proc/{id}/status")).ok()?))
        .collect()
}

fn parse(id: i32, status: &str) -> Option<Process> {
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()
    };
    Some(Process {
        id,
        parent: field("PPid")?.parse().ok()?,
        user: field("Uid")?.parse().ok()?,
        threads: field("Threads").and_then(|count| count.parse().ok()).unwrap_or(1),
        is_dead: matches!(field("State"), Some("Z" | "X")),
    })
}

/// Where the processes of one command are.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// The process whose descendants they are.
    pub(crate) ancestor: Option<i32>,
    /// The user that has no other processes.
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<Group>,
}

/// How often a round looks for processes that are not stopped yet.
const LOOKS: usize = 20;

impl Family {
    /// The living processes.
    pub(crate) fn members(&self) -> HashSet<i32> {
        let all = all();
        let mut found: HashSet<i32> = self.group.iter().flat_map(Group::processes).collect();
        let mut inside: HashSet<i32> = self.ancestor.into_iter().collect();
        // A child can have a lower id than its parent, so the list is gone through until nothing is added.
        loop {
            let children = all.iter().filter(|process| inside.contains(&process.parent));
            let new: Vec<i32> = children
                .map(|process| process.id)
                .filter(|id| !inside.contains(id))
                .collect();
            if new.is_empty() {
                break;
            }
            inside.extend(new);
        }
        let is_member = |process: &&Process| self.user == Some(process.user) || inside.contains(&process.id);
        found.extend(all.iter().filter(is_member).map(|process| process.id));
        let dead = all.iter().filter(|process| process.is_dead).map(|process| process.id);
        let own = i32::try_from(std::process::id()).ok();
        for id in dead.chain(self.ancestor).chain(own) {
            found.remove(&id);
        }
        found
    }

    /// One round of ending all of them; returns how many were found. Stopped processes do not fork, so all are stopped
    /// before the first is killed.
    pub(crate) fn end(&self) -> usize {
        if let Some(group) = &self.group {
            group.close();
        }
        let mut found = HashSet::new();
        for _ in 0..LOOKS {
            let new: Vec<i32> = self.members().difference(&found).copied().collect();
            if new.is_empty() {
                break;
            }
            for id in new {
                send(id, Signal::STOP);
                found.insert(id);
            }
        }
        for id in &found {
            send(*id, Signal::KILL);
        }
        found.len()
    }
}

fn send(id: i32, signal: Signal) {
    if let Some(id) = Pid::from_raw(id) {
        // It may have ended meanwhile.
        let _ = kill_process(id, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_parsed() {
        let status = "Name:\ta b\nState:\tZ (zombie)\nPPid:\t7\nUid:\t5\t6\t6\t6\nThreads:\t3\n";
        let expected = Process {
            id: 9,
            parent: 7,
            user: 5,
            threads: 3,
            is_dead: true,
        };
        assert_eq!(parse(9, status), Some(expected));
        assert_eq!(parse(9, "Name:\tx\n"), None);
    }

    #[test]
    fn the_descendants_of_a_process_are_its_family_and_no_others() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "setsid sleep 60 & wait"])
            .spawn()
            .expect("a shell");
        let id = i32::try_from(child.id()).expect("an id");
        let family = Family {
            ancestor: Some(id),
            ..Family::default()
        };
        while family.members().is_empty() {
            std::thread::yield_now();
        }
        assert!(!family.members().contains(&1));
        while family.end() > 0 {}
        assert!(child.wait().expect("it ends").success() || family.members().is_empty());
    }
}
