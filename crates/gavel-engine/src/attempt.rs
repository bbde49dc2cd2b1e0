//! Which entries of a journal count, and how much they are.

use crate::domain::journal::Entry;

/// The entries that count against the limits: those since the last resume.
pub(super) fn current(journal: &[Entry]) -> &[Entry] {
    let resumed = journal.iter().rposition(|entry| matches!(entry, Entry::Resumed { .. }));
    match resumed {
        None => journal,
        Some(at) => &journal[at..],
    }
}

/// The number of model calls so far.
#[must_use]
pub fn iterations(journal: &[Entry]) -> u32 {
    let count = journal
        .iter()
        .filter(|entry| matches!(entry, Entry::ModelTurn { .. } | Entry::ModelFault { .. }))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The tokens of all model calls.
pub(super) fn tokens(journal: &[Entry]) -> u64 {
    let used = journal.iter().map(|entry| match entry {
        Entry::ModelTurn { turn, .. } => turn.usage.total(),
        Entry::ModelFault { usage, .. } => usage.total(),
        _ => 0,
    });
    used.fold(0, u64::saturating_add)
}

/// The number of calls proposed so far.
pub(super) fn proposed(journal: &[Entry]) -> u32 {
    let calls = journal.iter().map(|entry| entry.calls().len());
    u32::try_from(calls.sum::<usize>()).unwrap_or(u32::MAX)
}
