//! Accepted tool digests of servers with `pin: true`, kept in a small JSON file.
//!
//! A tool that is seen for the first time is accepted. A tool whose digest differs from the accepted one is held back
//! until an operator accepts it.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::tool::Tool;

/// Maximum wait for the lock, and the interval of attempts.
const TURN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// An accepted definition.
#[derive(Clone, Debug)]
pub struct AcceptedTool {
    /// The digest that was accepted before.
    pub before: Option<String>,
    /// The tool that is accepted from now on.
    pub tool: Arc<Tool>,
}

/// Why a tool's definition was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// No server has this name.
    #[error("no server is called `{0}`")]
    UnknownServer(String),
    /// Its tools are not pinned.
    #[error("the tools of `{0}` are not pinned (`\"pin\": true` in mcp.json), so none is held back")]
    NotPinned(String),
    /// The server does not currently offer this tool.
    #[error("`{server}` offers no tool called `{tool}` now")]
    UnknownTool {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
    },
    /// The current definition is not the one to be accepted.
    #[error("`{server}` now gives another definition of `{tool}`: its digest is {now}; nothing was accepted")]
    OtherDigest {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The current digest.
        now: String,
    },
    /// The acceptance could not be stored.
    #[error("the acceptance could not be stored: {0}")]
    Io(#[from] std::io::Error),
}

/// server → tool → accepted digest.
type Accepted = BTreeMap<String, BTreeMap<String, String>>;

/// The accepted digests. Without a path, they are kept only for this process.
#[derive(Debug)]
pub(super) struct Pins {
    path: Option<PathBuf>,
    accepted: Mutex<Accepted>,
}

impl Pins {
    /// Reads the file, which need not exist yet.
    ///
    /// # Errors
    /// The file cannot be read, or was not written by [`Pins`]. Then the accepted digests are unknown, and treating the
    /// tools as seen for the first time would defeat pinning.
    pub(super) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let pins = Self {
            path,
            accepted: Mutex::default(),
        };
        drop(pins.load()?);
        Ok(pins)
    }

    /// The digests that are accepted now, read from the file, because `gavel mcp` in another process may have changed
    /// it.
    fn load(&self) -> io::Result<MutexGuard<'_, Accepted>> {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        match self.path.as_deref().map(fs::read) {
            None => {}
            Some(Ok(text)) => *accepted = serde_json::from_slice(&text)?,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(Err(error)) => return Err(error),
        }
        Ok(accepted)
    }

    /// Which of `tools` (name, digest) differ from the accepted ones? Tools that were never seen are accepted now.
    ///
    /// # Errors
    /// The file could not be read or written.
    pub(super) fn check<'a>(&self, server: &str, tools: &[(&'a str, &'a str)]) -> io::Result<Vec<&'a str>> {
        let knows = |accepted: &Accepted, tool: &str| accepted.get(server).is_some_and(|of| of.contains_key(tool));
        let mut accepted = self.load()?;
        if !tools.iter().all(|(tool, _)| knows(&accepted, tool)) {
            drop(accepted);
            accepted = self.change(|accepted| {
                let of_server = accepted.entry(server.to_owned()).or_default();
                for (tool, digest) in tools {
                    of_server
                        .entry((*tool).to_owned())
                        .or_insert_with(|| (*digest).to_owned());
                }
            })?;
        }
        let as_accepted = |tool: &str, digest: &str| {
            let known = accepted.get(server).and_then(|of| of.get(tool));
            known.is_some_and(|known| known == digest)
        };
        let changed = tools.iter().filter(|(tool, digest)| !as_accepted(tool, digest));
        Ok(changed.map(|(tool, _)| *tool).collect())
    }

    /// Accepts a tool's digest from now on, and returns the previously accepted one.
    ///
    /// # Errors
    /// The file could not be read or written. Nothing has changed then.
    pub(super) fn accept(&self, server: &str, tool: &str, digest: &str) -> io::Result<Option<String>> {
        let mut before = None;
        drop(self.change(|accepted| {
            let of_server = accepted.entry(server.to_owned()).or_default();
            before = of_server.insert(tool.to_owned(), digest.to_owned());
        })?);
        Ok(before)
    }

    /// Changes the file and the copy in memory. A lock covers reading and writing, so that no process undoes what
    /// another has accepted.
    fn change(&self, change: impl FnOnce(&mut Accepted)) -> io::Result<MutexGuard<'_, Accepted>> {
        let turn = self.path.as_deref().map(turn).transpose()?;
        let mut accepted = self.load()?;
        let mut next = accepted.clone();
        change(&mut next);
        if let Some(path) = &self.path {
            save(path, &next)?;
        }
        *accepted = next;
        drop(turn);
        Ok(accepted)
    }
}

/// Waits for the lock, which is released with the handle. The lock is a separate file, because each change replaces the
/// data file. A process that was stopped while it held the lock must not block this one forever.
fn turn(path: &Path) -> io::Result<File> {
    let file = File::create(path.with_extension("lock"))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < TURN => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                let words = format!("another process has not released {}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Renames the file into place, so that a crash leaves either the old or the new file.
fn save(path: &Path, accepted: &Accepted) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(accepted)?)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_changed_tool_is_held_back_until_it_is_accepted_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let path = Some(dir.path().join("pins.json"));
        let pins = Pins::open(path.clone()).unwrap();
        assert!(pins.check("s", &[("a", "1"), ("b", "2")]).unwrap().is_empty());
        let pins = Pins::open(path.clone()).unwrap();
        assert_eq!(pins.check("s", &[("a", "9"), ("b", "2")]).unwrap(), ["a"]);
        assert_eq!(
            pins.check("s", &[("a", "9"), ("c", "3")]).unwrap(),
            ["a"],
            "seeing it again does not accept it, even together with a new one"
        );
        assert!(pins.check("other", &[("a", "9")]).unwrap().is_empty());
        assert_eq!(pins.accept("s", "a", "9").unwrap().as_deref(), Some("1"));
        let pins = Pins::open(path).unwrap();
        assert!(pins.check("s", &[("a", "9"), ("c", "3")]).unwrap().is_empty());
    }

    #[test]
    fn nothing_is_written_before_there_is_something_to_keep() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Pins::open(Some(dir.path().join("pins.json"))).unwrap();
        assert!(pins.check("s", &[]).unwrap().is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn operators_who_accept_at_once_do_not_undo_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = Some(dir.path().join("pins.json"));
        std::thread::scope(|scope| {
            for n in 0..4 {
                let pins = Pins::open(path.clone()).unwrap();
                scope.spawn(move || {
                    for tool in 0..25 {
                        pins.accept("s", &format!("{n}-{tool}"), "1").unwrap();
                    }
                });
            }
        });
        let kept = Pins::open(path).unwrap();
        assert_eq!(kept.load().unwrap()["s"].len(), 100);
    }

    #[test]
    fn a_process_that_keeps_its_turn_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins.json");
        let pins = Pins::open(Some(path.clone())).unwrap();
        let kept = turn(&path).unwrap();
        let error = pins.check("s", &[("a", "1")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        drop(kept);
        assert!(pins.check("s", &[("a", "1")]).unwrap().is_empty());
    }

    #[test]
    fn a_broken_file_is_an_error_and_not_a_first_sight() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins.json");
        std::fs::write(&path, "{").unwrap();
        assert!(Pins::open(Some(path)).is_err());
    }
}
