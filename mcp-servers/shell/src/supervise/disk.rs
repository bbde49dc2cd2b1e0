//! The limit of a session's working directory.
//!
//! The file system counts for all its users together, so the directory is measured: before a command, as soon as the
//! free space has fallen so far that the limit can be near, and now and then. Between two measurements a fast writer
//! gets beyond the limit by what it writes meanwhile; no single file does, as its size is limited by the kernel. After
//! the command, what it wrote beyond the limit is cut off, so that many commands together do not get beyond it.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, fstatvfs, ftruncate, open, openat, statat, unlinkat,
};
use rustix::io::Errno;

/// Directories within directories. What is deeper is not measured, so it counts as too much.
const DEPTH: usize = 400;
/// What each entry counts at least, in bytes: an entry without content needs space as well.
const ENTRY: u64 = 1024;
/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

const SELDOM: Duration = Duration::from_secs(1);

/// The measurements of one working directory.
#[derive(Debug)]
pub(super) struct Disk {
    directory: OwnedFd,
    /// What ends the command. A directory that is over the limit already may not grow.
    most: u64,
    limit: u64,
    first: Measured,
    last: Measured,
    cost: Duration,
}

#[derive(Debug, Clone)]
struct Measured {
    /// By inode, so that a file with several names counts once.
    files: HashMap<u64, Taken>,
    used: u64,
    /// Whether nothing was too deep or unreadable.
    is_whole: bool,
    /// Of the file system.
    free: u64,
    at: Instant,
}

/// What a file or a directory takes, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    bytes: u64,
    /// The length of its content, which may have holes.
    length: u64,
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
            most: first.used.max(limit),
            limit,
            last: first.clone(),
            first,
            cost: begin.elapsed(),
        })
    }

    /// Whether the command may write at all: what cannot be measured may not grow.
    pub(super) fn is_measured(&self) -> bool {
        self.first.is_whole
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
        self.is_exceeded().then_some(self.last.used)
    }

    /// The used bytes, if the command has filled the directory. For the time after its end: what is over the limit is
    /// cut off.
    pub(super) fn settle(&mut self) -> Option<u64> {
        self.look(&[]);
        let used = self.last.used;
        let has_filled = used >= self.limit && self.first.used < self.limit;
        let is_exceeded = self.is_exceeded();
        // First what grew most, then all. What cannot be cut is removed, directories after what is in them.
        for (removes, part) in [(false, 8), (false, u64::MAX), (true, u64::MAX)] {
            let excess = self.last.used.saturating_sub(self.most);
            if excess > 0 {
                self.undo(removes, excess, excess / part);
                self.look(&[]);
            }
        }
        (is_exceeded || has_filled).then_some(used)
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

    /// Takes back what the command has added, by more than `least` bytes each, until the excess is gone. No process of
    /// the command may be left. A file is cut, but not below its length of before, or removed if it is new. One whose holes
    /// were filled counts as new.
    fn undo(&self, removes: bool, mut excess: u64, least: u64) {
        let visit = &mut |directory: BorrowedFd<'_>, name: &CStr, found: &Stat| {
            let before = self.first.files.get(&found.st_ino).copied().unwrap_or_default();
            let now = Taken::from(found);
            let added = now.bytes.saturating_sub(before.bytes);
            if excess == 0 || added <= least {
                return;
            }
            let kind = FileType::from_raw_mode(found.st_mode);
            let undone = match kind {
                FileType::Directory if removes && before.bytes == 0 => unlinkat(directory, name, AtFlags::REMOVEDIR),
                FileType::Directory => return,
                _ if removes && before.bytes < before.length.max(1) => unlinkat(directory, name, AtFlags::empty()),
                FileType::RegularFile if !removes => {
                    cut(directory, name, now.bytes.saturating_sub(excess).max(before.length))
                }
                _ => return,
            };
            // A file that has another name takes its space until that is removed too.
            if undone.is_ok() && (!removes || found.st_nlink == 1 || kind == FileType::Directory) {
                excess = excess.saturating_sub(added);
            }
        };
        // The measurement after it shows what is left.
        let _ = walk(&self.directory, DEPTH, visit);
    }
}

fn cut(directory: BorrowedFd<'_>, name: &CStr, length: u64) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    ftruncate(openat(directory, name, flags, Mode::empty())?, length)
}

fn measure(directory: &OwnedFd, processes: &[i32]) -> io::Result<Measured> {
    let free = free(directory)?;
    let device = fstat(directory)?.st_dev;
    let mut files = HashMap::new();
    let is_whole = walk(directory, DEPTH, &mut |_, _, found| {
        files.insert(found.st_ino, Taken::from(found));
    })?;
    let used: u64 = files.values().map(|taken| taken.bytes).sum();
    Ok(Measured {
        used: used.saturating_add(deleted(processes, device)),
        files,
        is_whole,
        free,
        at: Instant::now(),
    })
}

fn free(directory: &OwnedFd) -> io::Result<u64> {
    let found = fstatvfs(directory)?;
    Ok(found.f_bfree.saturating_mul(found.f_frsize))
}

impl From<&Stat> for Taken {
    fn from(found: &Stat) -> Self {
        let blocks = u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
        Self {
            bytes: blocks.max(ENTRY),
            length: u64::try_from(found.st_size).unwrap_or(0),
        }
    }
}

/// Visits all that is in the directory, a directory after what is in it. No link is followed. Returns whether nothing
/// was too deep or unreadable.
fn walk(directory: impl AsFd, depth: usize, visit: &mut impl FnMut(BorrowedFd<'_>, &CStr, &Stat)) -> io::Result<bool> {
    let mut is_whole = true;
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
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&directory, name, flags, Mode::empty()) {
                Ok(inner) if depth > 0 => is_whole &= walk(inner, depth - 1, visit)?,
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                Ok(_) | Err(_) => is_whole = false,
            }
        }
        visit(directory.as_fd(), name, &found);
    }
    Ok(is_whole)
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
        assert_eq!((disk.last.used, disk.settle()), (0, None));
        fs::create_dir(path.join("a")).expect("a directory");
        fs::write(path.join("a/b"), vec![1; 300_000]).expect("a file");
        fs::hard_link(path.join("a/b"), path.join("c")).expect("a link");
        std::os::unix::fs::symlink("/usr", path.join("d")).expect("a link");
        assert_eq!(disk.settle(), None);
        assert!((300_000..320_000).contains(&disk.last.used), "{disk:?}");
        fs::write(path.join("e"), vec![1; 1 << 20]).expect("a file");
        assert!(disk.settle().is_some());
        // A directory that is full already may be cleaned up.
        assert_eq!(Disk::open(path, 1 << 20).expect("measures").settle(), None);
    }

    /// What the writers do is what commands do, one after the other.
    #[test]
    fn many_commands_together_do_not_get_beyond_the_limit() {
        use std::os::unix::fs::FileExt;
        type Writer = fn(&Path);
        let temporary = tempfile::tempdir().expect("a directory");
        let path = temporary.path();
        let limit = 2 << 20;
        let writers: [(&str, Writer); 8] = [
            ("a file that stays", |path| {
                fs::write(path.join("kept"), vec![7; 1 << 20]).expect("a file")
            }),
            ("large files", |path| {
                (0..8).for_each(|n| fs::write(path.join(format!("large{n}")), vec![1; 1 << 20]).expect("a file"));
            }),
            ("a file that grows", |path| {
                let file = fs::File::options().append(true).open(path.join("kept")).expect("open");
                io::Write::write_all(&mut &file, &vec![1; 3 << 20]).expect("written");
            }),
            ("holes", |path| {
                (0..8).for_each(|n| drop(fs::remove_file(path.join(format!("large{n}")))));
                let file = fs::File::create(path.join("sparse")).expect("a file");
                file.set_len(8 << 20).expect("a length");
            }),
            ("holes that are filled", |path| {
                let file = fs::File::options().write(true).open(path.join("sparse")).expect("open");
                file.write_all_at(&vec![1; 8 << 20], 0).expect("written");
            }),
            ("a file with two names", |path| {
                fs::write(path.join("one"), vec![1; 4 << 20]).expect("a file");
                fs::hard_link(path.join("one"), path.join("two")).expect("a link");
            }),
            ("directories", |path| {
                (0..3000).for_each(|n| fs::create_dir_all(path.join(format!("d{n}/e"))).expect("directories"));
            }),
            ("small files", |path| {
                (0..5000).for_each(|n| fs::write(path.join(format!("s{n}")), "x").expect("a file"))
            }),
        ];
        for (what, write) in writers {
            let mut disk = Disk::open(path, limit).expect("measures");
            write(path);
            let exceeds = measure(&disk.directory, &[]).expect("measured").used > limit;
            assert_eq!(disk.settle().is_some(), exceeds, "{what}");
            let left = Disk::open(path, limit).expect("measures").last.used;
            // A file that was cut can keep a block for the file system's own data.
            assert!(left <= limit + (16 << 10), "{what}: {left}");
            let kept = fs::read(path.join("kept")).expect(what);
            assert!(kept.len() >= 1 << 20 && kept[..1 << 20] == vec![7; 1 << 20], "{what}");
        }
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
        assert!(!disk.is_measured());
        assert_eq!(disk.settle(), None);
    }
}
