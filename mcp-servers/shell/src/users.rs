//! Users for commands, if the server runs as root: one for each session.
//!
//! The limit of processes counts per user and does not apply to root, and a user of its own cannot touch the processes
//! and files of other users, of shared ones such as 65534 either.

use std::collections::HashSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

/// Linux distributions and systemd give these ids to no user.
const UNUSED: RangeInclusive<u32> = 0x7000_0000..=0x7fff_fffe;
/// The fewest ids that are enough to choose from.
const ENOUGH: u32 = 1000;

/// Ids to choose from, each for a user and its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Users(RangeInclusive<u32>);

impl Users {
    /// The ids for commands; `None` if this process is not root.
    pub(crate) fn of_this_process() -> anyhow::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let map =
            |name: &str| fs::read_to_string(Path::new("/proc/self").join(name)).with_context(|| format!("no {name}"));
        let both = mapped(&map("uid_map")?).zip(mapped(&map("gid_map")?));
        let range =
            both.map(|(users, groups)| (*users.start()).max(*groups.start())..=(*users.end()).min(*groups.end()));
        let range = range.filter(|range| range.end().saturating_sub(*range.start()) >= ENOUGH);
        let range = range.context(
            "the server runs as root in a user namespace without ids for other users; run it as another user than root",
        )?;
        Ok(Some(Self(range)))
    }

    /// An id for this name that is not in use. It is the same again as long as it is free.
    pub(crate) fn choose(&self, name: &str, is_taken: impl Fn(u32) -> bool) -> anyhow::Result<u32> {
        let digest = Sha256::digest(name);
        let seed = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let count = self.0.end() - self.0.start() + 1;
        let running = running_users();
        let found = (0..ENOUGH)
            .map(|step| self.0.start() + (seed.wrapping_add(step) % count))
            .find(|id| !running.contains(id) && !is_taken(*id));
        found.context("no free user id was found for the session")
    }
}

/// The ids that exist in this user namespace: those without other use, or the highest of them.
fn mapped(map: &str) -> Option<RangeInclusive<u32>> {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first, first + count.checked_sub(1)?))
    });
    let (first, last) = ranges.max_by_key(|(_, last)| *last)?;
    let (unused_first, unused_last) = (u64::from(*UNUSED.start()), u64::from(*UNUSED.end()));
    let (first, last) = match first <= unused_first && last >= unused_last {
        true => (unused_first, unused_last),
        // Without 65534, which others run as too.
        false => (
            first.max(last.saturating_sub(8000)).max(1000),
            last.min(unused_last).checked_sub(2)?,
        ),
    };
    Some(u32::try_from(first).ok()?..=u32::try_from(last).ok()?)
}

/// The users that have processes.
fn running_users() -> HashSet<u32> {
    crate::processes::all().iter().map(|process| process.user).collect()
}

/// Whether a user other than root can come to the directory by its path: each directory above lets others through.
pub(crate) fn check_reachable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for directory in path.ancestors().skip(1) {
        let mode = fs::metadata(directory)?.permissions().mode();
        ensure!(
            mode & 0o001 != 0,
            "SHELL_ROOT: commands do not run as root, and {} does not let other users through; choose another \
             directory, or run chmod o+x {}",
            directory.display(),
            directory.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unused_ids_are_chosen_from_where_they_exist() {
        assert_eq!(mapped("         0          0 4294967295\n"), Some(UNUSED));
        assert_eq!(mapped("0 1000 1\n1 100000 65536\n"), Some(57536..=65534));
        assert_eq!(mapped(""), None);
        let alone = mapped("0 1000 1\n");
        assert!(alone.is_none_or(|range| range.is_empty()), "root alone");
    }

    #[test]
    fn a_session_keeps_its_id_and_no_two_share_one() {
        let users = Users(UNUSED);
        let first = users.choose("a", |_| false).expect("an id");
        assert_eq!(users.choose("a", |_| false).expect("an id"), first);
        assert_ne!(users.choose("a", |id| id == first).expect("an id"), first);
        assert_ne!(users.choose("b", |_| false).expect("an id"), first);
    }
}
