//! The journal of a run, with the state of its calls.

use std::ops::Deref;

use serde_json::Value;

use super::ledger::{self, Ledger};
use super::record::proposed;
use crate::domain::canonical;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, FunctionCall, Proposed, Target};

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

    /// The entry of a call that code makes, as the next step.
    pub(super) fn step(&self, (step, round): (u32, u32), target: Target, name: String, arguments: &Value) -> Entry {
        let call = Proposed {
            id: ActionId::new(),
            sequence: proposed(self) + 1,
            target,
            call: FunctionCall {
                id: None,
                name,
                args: canonical::to_raw(arguments),
            },
        };
        Entry::Step { step, round, call }
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
