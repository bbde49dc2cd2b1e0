//! Where each value of a definition was written.

use std::collections::BTreeMap;

/// Locations of fields and list items by their portable path, for later checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(BTreeMap<String, (String, u64)>);

impl Places {
    /// Records the location and the spelling of `path`.
    pub(crate) fn insert(&mut self, path: String, spelled: String, line: u64) {
        self.0.entry(path).or_insert((spelled, line));
    }

    /// The line of a portable path, if it is given.
    pub(crate) fn line(&self, path: &str) -> Option<u64> {
        self.0.get(path).map(|(_, line)| *line).filter(|line| *line > 0)
    }

    /// Whether it is given.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The spelling of a portable path in the file.
    pub(crate) fn spelled(&self, path: &str) -> String {
        self.0.get(path).map_or(path, |(spelled, _)| spelled).to_owned()
    }
}
