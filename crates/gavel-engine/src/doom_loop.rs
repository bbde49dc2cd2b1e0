//! Detects repeated identical calls. Pure.

use serde_json::Value;

use crate::domain::journal::{Entry, Proposed, Target, Verdict};

/// The third identical call in a row and those after it are not run.
pub const REFUSED_FROM: u32 = 3;
/// The fifth identical call in a row ends the run.
pub const ENDS_AT: u32 = 5;

/// For each call of the journal's last turn: how many identical calls in a row end with it.
///
/// Calls are identical if their names and argument values are equal, whatever their formatting. Every call counts,
/// including several of one turn and those that were not run.
pub(super) fn in_a_row(journal: &[Entry]) -> Vec<u32> {
    let Some(turn) = journal.iter().rposition(|entry| !entry.calls().is_empty()) else {
        return Vec::new();
    };
    let earlier = journal[..turn]
        .iter()
        .rev()
        .flat_map(|entry| entry.calls().iter().rev())
        // A reflection between two calls says nothing about them.
        .filter(|call| !matches!(call.target, Target::Verdict(Ok(Verdict::Reflect(_)))));
    let calls = journal[turn].calls();
    let mut counts = Vec::with_capacity(calls.len());
    for (n, call) in calls.iter().enumerate() {
        let before = match n.checked_sub(1) {
            Some(n) if same(&calls[n], call) => counts[n],
            Some(_) => 0,
            None => {
                let most = usize::try_from(ENDS_AT).unwrap_or(usize::MAX);
                let run = earlier.clone().take(most).take_while(|other| same(other, call));
                u32::try_from(run.count()).unwrap_or(ENDS_AT)
            }
        };
        counts.push(before + 1);
    }
    counts
}

/// The call that ends the run, by these counts.
pub(super) fn end(counts: &[u32]) -> Option<usize> {
    counts.iter().position(|count| *count >= ENDS_AT)
}

fn same(a: &Proposed, b: &Proposed) -> bool {
    if a.call.name != b.call.name {
        return false;
    }
    if a.call.args.get() == b.call.args.get() {
        return true;
    }
    let read = |call: &Proposed| serde_json::from_str::<Value>(call.call.args.get());
    matches!((read(a), read(b)), (Ok(a), Ok(b)) if a == b)
}
