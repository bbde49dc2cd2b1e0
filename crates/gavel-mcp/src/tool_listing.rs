//! A server's tools on their way to the catalog: parsed, and held back if they are pinned.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::config::ServerConfig;
use super::connection::Common;
use super::definition::{self, Offer};
use super::link::Listener;
use super::log;
use super::source::Source;
use crate::domain::tool::Tool;
use crate::ports::metrics::{Gauge, MCP_UP};
use crate::ports::tools::LeftOut;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server's listed tools, and which of them are offered.
pub(super) struct ToolListing {
    config: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    listed: Mutex<Listed>,
}

/// A server's tools.
#[derive(Default)]
struct Listed {
    /// All tools that could be read, including those held back.
    offer: Offer,
    /// Is the server connected? Only then may its tools be added to the catalog.
    connected: bool,
    /// The tools that are held back.
    held: Vec<LeftOut>,
}

impl ToolListing {
    pub(super) fn new(config: &Arc<ServerConfig>, source: &Arc<Source>, common: &Arc<Common>) -> Self {
        Self {
            config: config.clone(),
            source: source.clone(),
            common: common.clone(),
            listed: Mutex::default(),
        }
    }

    /// The tools that are held back, with the server's current definitions.
    pub(super) fn held_back(&self) -> Vec<Arc<Tool>> {
        let listed = lock(&self.listed);
        let is_held = |tool: &&Arc<Tool>| listed.held.iter().any(|held| *held.tool == *tool.name);
        let tools = listed.offer.tools.iter().filter(|_| listed.connected);
        tools.filter(is_held).cloned().collect()
    }

    /// Accepts the current definition of a pinned tool; with `digest`, only if the digest matches.
    ///
    /// # Errors
    /// [`PinError`].
    pub(super) fn accept(&self, tool: &str, digest: Option<&str>) -> Result<AcceptedTool, PinError> {
        let server = &self.config.name;
        if !self.config.gavel.pin {
            return Err(PinError::NotPinned(server.to_string()));
        }
        let mut listed = lock(&self.listed);
        let mut known = listed.offer.tools.iter().filter(|_| listed.connected);
        let Some(tool) = known.find(|known| &*known.name == tool).cloned() else {
            return Err(PinError::UnknownTool {
                server: server.to_string(),
                tool: tool.to_owned(),
            });
        };
        if digest.is_some_and(|digest| *digest != *tool.digest) {
            return Err(PinError::OtherDigest {
                server: server.to_string(),
                tool: tool.name.to_string(),
                now: tool.digest.to_string(),
            });
        }
        let before = self.common.pins.accept(server, &tool.name, &tool.digest)?;
        self.publish(&mut listed);
        Ok(AcceptedTool { before, tool })
    }

    /// Are the tools of this server pinned?
    pub(super) fn is_pinned(&self) -> bool {
        self.config.gavel.pin
    }

    /// Checks whether another process has accepted tools that are held back.
    ///
    /// It reads a file and may wait for its lock, so it must not run in an async task.
    pub(super) fn look_again(&self) {
        let mut listed = lock(&self.listed);
        if !listed.held.is_empty() {
            self.publish(&mut listed);
        }
    }

    fn publish(&self, listed: &mut Listed) {
        if !listed.connected {
            return;
        }
        let mut offer = Offer {
            tools: listed.offer.tools.clone(),
            left_out: listed.offer.left_out.clone(),
        };
        if self.config.gavel.pin {
            let held = self.hold_back(&mut offer);
            for left in held.iter().filter(|left| !listed.held.contains(left)) {
                log::line!(
                    self.source.log,
                    warn,
                    "tool held back",
                    tool = left.tool,
                    reason = left.reason
                );
            }
            for left in &listed.held {
                if !held.iter().any(|still| still.tool == left.tool) {
                    log::line!(self.source.log, info, "tool no longer held back", tool = left.tool);
                }
            }
            offer.left_out.extend(held.iter().cloned());
            listed.held = held;
        }
        self.common.registry.up(&self.config.name, offer);
    }

    /// Removes the tools from the offer whose definition is not the accepted one.
    fn hold_back(&self, offer: &mut Offer) -> Vec<LeftOut> {
        let name = &self.config.name;
        let digests: Vec<_> = offer.tools.iter().map(|tool| (&*tool.name, &*tool.digest)).collect();
        let held: Vec<_> = match self.common.pins.check(name, &digests) {
            Ok(changed) => changed
                .into_iter()
                .map(|tool| {
                    let reason = format!(
                        "its definition is not the accepted one; `gavel mcp inspect {name} {tool}` shows it, \
                         `gavel mcp accept {name} {tool}` accepts it"
                    );
                    (tool.to_owned(), reason)
                })
                .collect(),
            // The accepted definitions are unknown, so all tools are held back.
            Err(error) => {
                let reason = format!("the accepted definitions could not be read or stored: {error}");
                digests
                    .iter()
                    .map(|(tool, _)| ((*tool).to_owned(), reason.clone()))
                    .collect()
            }
        };
        offer
            .tools
            .retain(|tool| !held.iter().any(|(held, _)| **held == *tool.name));
        let left_out = held.into_iter().map(|(tool, reason)| LeftOut {
            server: name.clone(),
            tool,
            reason,
        });
        left_out.collect()
    }
}

impl Listener for ToolListing {
    fn listed(&self, list: &[Value]) {
        let mut listed = lock(&self.listed);
        let offer = definition::read(&self.config, &self.source, list, &listed.offer.tools);
        let new = |left: &&LeftOut| !listed.offer.left_out.contains(left);
        for left in offer.left_out.iter().filter(new) {
            log::line!(
                self.source.log,
                warn,
                "tool left out",
                tool = left.tool,
                reason = left.reason
            );
        }
        listed.offer = offer;
        for name in self.config.gavel.tools.keys() {
            if !listed.offer.tools.iter().any(|tool| *tool.name == **name) {
                log::line!(
                    self.source.log,
                    warn,
                    "settings for a tool that is not offered",
                    tool = name
                );
            }
        }
        listed.connected = true;
        self.publish(&mut listed);
        is_up(&self.config).set(1.0);
    }

    fn lost(&self, reason: &str, soon: bool) {
        // The lock is held, so that no other task adds the tools again at the same time.
        let mut listed = lock(&self.listed);
        listed.connected = false;
        self.common.registry.down(&self.config.name, reason, soon);
        is_up(&self.config).set(0.0);
    }
}

pub(super) fn is_up(server: &ServerConfig) -> Gauge {
    MCP_UP.with([server.name.to_string().into()])
}

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
