//! Accepted tool digests of servers with `pin: true`, kept in a small JSON file.
//!
//! A tool seen for the first time is accepted as it is; a tool whose digest differs from the
//! accepted one is held back until an operator accepts it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// server → tool → accepted digest.
type Accepted = BTreeMap<String, BTreeMap<String, String>>;

/// The accepted digests; without a path they are kept for this process only.
#[derive(Debug)]
pub(super) struct Pins {
    path: Option<PathBuf>,
    accepted: Mutex<Accepted>,
}

impl Pins {
    /// Reads the file, which need not exist yet.
    ///
    /// # Errors
    /// The file cannot be read, or is not what [`Pins`] writes: then nothing is known to be
    /// accepted, and taking that for a first sight would undo the pinning.
    pub(super) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let pins = Self {
            path,
            accepted: Mutex::default(),
        };
        drop(pins.load()?);
        Ok(pins)
    }

    /// What is accepted now: the file's word, since `gavel mcp` in another process may have changed it.
    fn load(&self) -> io::Result<MutexGuard<'_, Accepted>> {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        match self.path.as_deref().map(std::fs::read) {
            None => {}
            Some(Ok(text)) => *accepted = serde_json::from_slice(&text)?,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(Err(error)) => return Err(error),
        }
        Ok(accepted)
    }

    /// Which of `tools` (name, digest) are not as accepted? Those never seen are accepted now.
    ///
    /// # Errors
    /// The file could not be read or written.
    pub(super) fn check<'a>(
        &self,
        server: &str,
        tools: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> io::Result<Vec<&'a str>> {
        let mut accepted = self.load()?;
        let of_server = accepted.entry(server.to_owned()).or_default();
        let (mut changed, mut new) = (Vec::new(), false);
        for (name, digest) in tools {
            match of_server.get(name) {
                Some(known) if known == digest => {}
                Some(_) => changed.push(name),
                None => {
                    of_server.insert(name.to_owned(), digest.to_owned());
                    new = true;
                }
            }
        }
        if new {
            self.save(&accepted)?;
        }
        Ok(changed)
    }

    /// Accepts a tool's digest from now on.
    ///
    /// # Errors
    /// The file could not be read or written; then nothing has changed.
    pub(super) fn accept(&self, server: &str, tool: &str, digest: &str) -> io::Result<()> {
        let mut accepted = self.load()?;
        let mut next = accepted.clone();
        next.entry(server.to_owned())
            .or_default()
            .insert(tool.to_owned(), digest.to_owned());
        self.save(&next)?;
        *accepted = next;
        Ok(())
    }

    fn save(&self, accepted: &Accepted) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // Renamed into place, so that a crash leaves the old file or the new one.
        let beside = path.with_extension("tmp");
        std::fs::write(&beside, serde_json::to_vec_pretty(accepted)?)?;
        std::fs::rename(&beside, path)
    }
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
        assert!(
            pins.check("s", [("a", "1"), ("b", "2")].into_iter())
                .unwrap()
                .is_empty()
        );
        let pins = Pins::open(path.clone()).unwrap();
        assert_eq!(pins.check("s", [("a", "9"), ("b", "2")].into_iter()).unwrap(), ["a"]);
        assert_eq!(
            pins.check("s", [("a", "9")].into_iter()).unwrap(),
            ["a"],
            "seeing it again is not accepting it"
        );
        assert!(pins.check("other", [("a", "9")].into_iter()).unwrap().is_empty());
        pins.accept("s", "a", "9").unwrap();
        let pins = Pins::open(path).unwrap();
        assert!(pins.check("s", [("a", "9")].into_iter()).unwrap().is_empty());
    }

    #[test]
    fn a_broken_file_is_an_error_and_not_a_first_sight() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins.json");
        std::fs::write(&path, "{").unwrap();
        assert!(Pins::open(Some(path)).is_err());
    }
}
