//! The journal of a run, with the state of its calls.

use std::ops::Deref;

use super::ledger::{self, Ledger};
use crate::domain::journal::Entry;

/// The entries of a run, in order. The state of each call follows them: an entry is read once, when it is added.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: Vec<Entry>,
    calls: Vec<ledger::State>,
}

impl Journal {
    /// Adds an entry.
    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        ledger::add(&mut self.calls, &self.entries, self.entries.len() - 1);
    }

    /// The entries, to change what is in them. Their order, kinds and ids must stay: the calls refer to them by position.
    pub(super) fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// The calls, and what became of them.
    pub fn ledger(&self) -> Ledger<'_> {
        Ledger::new(&self.entries, &self.calls)
    }
}

impl Deref for Journal {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.entries
    }
}

impl<'a> IntoIterator for &'a Journal {
    type Item = &'a Entry;
    type IntoIter = std::slice::Iter<'a, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl Extend<Entry> for Journal {
    fn extend<T: IntoIterator<Item = Entry>>(&mut self, entries: T) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }
}

impl FromIterator<Entry> for Journal {
    fn from_iter<T: IntoIterator<Item = Entry>>(entries: T) -> Self {
        let mut journal = Self::default();
        journal.extend(entries);
        journal
    }
}

impl From<Vec<Entry>> for Journal {
    fn from(entries: Vec<Entry>) -> Self {
        entries.into_iter().collect()
    }
}
