//! The limit of a session's working directory.
//!
//! The file system counts for all its users together, so the directory is measured: as soon as the free space has
//! fallen so far that the limit can be near, and now and then. Between two measurements a fast writer gets beyond the
//! limit by what it writes meanwhile; no single file does, as its size is limited by the kernel.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, fstatvfs, open, openat, statat};
use rustix::io::Errno;

/// Directories within directories. What is deeper is not measured, so it counts as too much.
const DEPTH: usize = 400;
/// What each entry counts at least, in bytes: an entry without content needs space as well.
const ENTRY: u64 = 1024;
/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;
/// A directory that is over its limit may grow by this, in bytes, so that a command can clean it up.
const SLACK: u64 = 1 << 20;

const SELDOM: Duration = Duration::from_secs(1);

/// The measurements of one working directory.
#[derive(Debug)]
pub(super) struct Disk {
    directory: OwnedFd,
    limit: u64,
    /// What ends the command.
    most: u64,
    first: Measured,
    last: Measured,
    cost: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    used: u64,
    /// Whether nothing was too deep or unreadable.
    is_whole: bool,
    /// Of the file system.
    free: u64,
    at: Instant,
}

impl Disk {
    /// Measures for the first time. The limit is in bytes.
    pub(super) fn open(work: &Path, limit: u64) -> io::Result<Self> {
        let directory = open(
            work,
            OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let begin = Instant::now();
        let first = measure(&directory, &[])?;
        Ok(Self {
            directory,
            limit,
            most: match first.used >= limit {
                true => first.used.saturating_add(SLACK),
                false => limit,
            },
            first,
            last: first,
            cost: begin.elapsed(),
        })
    }

    /// The used bytes, if they are too many. `processes` may have open files that are deleted.
    pub(super) fn exceeded(&mut self, processes: impl FnOnce() -> Vec<i32>) -> Option<u64> {
        let free = free(&self.directory).unwrap_or(0);
        let fallen = self.last.free.saturating_sub(free);
        let elapsed = self.last.at.elapsed();
        let is_near = fallen >= self.most.saturating_sub(self.last.used) / 2 && elapsed >= self.cost * 4;
        if is_near || elapsed >= SELDOM.max(self.cost * 20) {
            self.look(&processes());
        }
        // If the directory could not be measured before, all that is written counts.
        let is_hidden = !self.first.is_whole && self.first.free.saturating_sub(free) > SLACK;
        (is_hidden || self.is_exceeded()).then_some(self.last.used)
    }

    /// The used bytes, if the command has filled the directory. For the time after its end.
    pub(super) fn filled(&mut self) -> Option<u64> {
        self.look(&[]);
        let was_full = self.first.used >= self.limit;
        (self.is_exceeded() || (!was_full && self.last.used >= self.limit)).then_some(self.last.used)
    }

    fn is_exceeded(&self) -> bool {
        self.last.used > self.most || (self.first.is_whole && !self.last.is_whole)
    }

    fn look(&mut self, processes: &[i32]) {
        let begin = Instant::now();
        match measure(&self.directory, processes) {
            Ok(measured) => self.last = measured,
            Err(_) => self.last.is_whole = false,
        }
        self.cost = begin.elapsed();
    }
}

fn measure(directory: &OwnedFd, processes: &[i32]) -> io::Result<Measured> {
    let free = free(directory)?;
    let device = fstat(directory)?.st_dev;
    let mut size = Size::default();
    size.add(directory, DEPTH)?;
    Ok(Measured {
        used: size.bytes.saturating_add(deleted(processes, device)),
        is_whole: !size.is_cut,
        free,
        at: Instant::now(),
    })
}

fn free(directory: &OwnedFd) -> io::Result<u64> {
    let found = fstatvfs(directory)?;
    Ok(found.f_bfree.saturating_mul(found.f_frsize))
}

/// The size of all that is in a directory.
#[derive(Debug, Default)]
struct Size {
    bytes: u64,
    /// Something was too deep or unreadable.
    is_cut: bool,
    /// Files with several names.
    linked: HashSet<u64>,
}

impl Size {
    /// Adds what is in the directory. No link is followed.
    fn add(&mut self, directory: impl AsFd, depth: usize) -> io::Result<()> {
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            // It may be gone.
            let Ok(found) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            if is_directory || found.st_nlink == 1 || self.linked.insert(found.st_ino) {
                let blocks = u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
                self.bytes = self.bytes.saturating_add(blocks.max(ENTRY));
            }
            if !is_directory {
                continue;
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&directory, name, flags, Mode::empty()) {
                Ok(inner) if depth > 0 => self.add(inner, depth - 1)?,
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                Ok(_) | Err(_) => self.is_cut = true,
            }
        }
        Ok(())
    }
}

/// The size of the files on the device that have no name any more and are open in these processes.
fn deleted(processes: &[i32], device: u64) -> u64 {
    let mut seen = HashSet::new();
    let mut sum: u64 = 0;
    for id in processes {
        let Ok(open) = fs::read_dir(format!("/proc/{id}/fd")) else {
            continue;
        };
        for entry in open.flatten() {
            let Ok(found) = fs::metadata(entry.path()) else {
                continue;
            };
            if found.is_file() && found.nlink() == 0 && found.dev() == device && seen.insert(found.ino()) {
                sum = sum.saturating_add(found.blocks().saturating_mul(BLOCK));
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_links_and_entries_are_counted_once() {
        let temporary = tempfile::tempdir().expect("a directory");
        let path = temporary.path();
        let mut disk = Disk::open(path, 1 << 20).expect("measures");
        assert_eq!((disk.last.used, disk.filled()), (0, None));
        fs::create_dir(path.join("a")).expect("a directory");
        fs::write(path.join("a/b"), vec![1; 300_000]).expect("a file");
        fs::hard_link(path.join("a/b"), path.join("c")).expect("a link");
        std::os::unix::fs::symlink("/usr", path.join("d")).expect("a link");
        assert_eq!(disk.filled(), None);
        assert!((300_000..320_000).contains(&disk.last.used), "{disk:?}");
        fs::write(path.join("e"), vec![1; 1 << 20]).expect("a file");
        assert!(disk.filled().is_some());
        // A directory that is full already may be cleaned up.
        assert_eq!(Disk::open(path, 1 << 20).expect("measures").filled(), None);
    }

    #[test]
    fn a_deleted_file_that_is_open_is_counted() {
        let temporary = tempfile::tempdir().expect("a directory");
        let path = temporary.path().join("a");
        fs::write(&path, vec![1; 2 << 20]).expect("a file");
        let file = fs::File::open(&path).expect("open");
        fs::remove_file(&path).expect("removed");
        let own = i32::try_from(std::process::id()).expect("an id");
        let device = file.metadata().expect("a file").dev();
        assert!(deleted(&[own], device) >= 2 << 20);
    }

    #[test]
    fn a_directory_that_is_too_deep_counts_as_full() {
        let temporary = tempfile::tempdir().expect("a directory");
        let mut disk = Disk::open(temporary.path(), 1 << 30).expect("measures");
        let deep: std::path::PathBuf = std::iter::repeat_n("d", DEPTH + 1).collect();
        fs::create_dir_all(temporary.path().join(deep)).expect("directories");
        assert!(disk.exceeded(Vec::new).is_none());
        std::thread::sleep(SELDOM);
        assert!(disk.exceeded(Vec::new).is_some());
        // It may be removed, and nothing may be written.
        let mut disk = Disk::open(temporary.path(), 1 << 30).expect("measures");
        assert_eq!(disk.filled(), None);
    }
}
