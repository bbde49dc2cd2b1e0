//! What all runs remember at once.
//!
//! The limit of one run does not bound many of them. So a run takes a share of one budget for what is in its journal, and gives it
//! back when it ends or waits. What is small is not counted.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use super::limits::MOST_JOURNAL;
use super::next::Next;
use crate::domain::budget::{Budget, FREE, Held, Limits};
use crate::domain::journal::Entry;
use crate::ports::records::OpenDecision;

const MIB: u64 = 1024 * 1024;
/// In bytes of memory; the largest run takes 32 MiB.
const LIMITS: Limits = Limits {
    process: 128 * MIB,
    tenant: 96 * MIB,
    user: 64 * MIB,
};
/// How often a byte of a journal is in memory: there, and in the request to the model or in what is recorded.
const COPIES: usize = 2;

static REMEMBERED: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new("bytes that runs remember", LIMITS));

/// May a run end for its size before this? Not while the outcome of a call is open, which would be lost; nor in place of an end that
/// says what was done.
pub(super) fn may_end(next: &Next<'_>, journal: &[Entry]) -> bool {
    match next {
        Next::Ask | Next::Step(..) => true,
        Next::End(_) => !journal.iter().any(|entry| matches!(entry, Entry::Started { .. })),
        Next::Act(_) | Next::Recover(_) | Next::Refuse(..) | Next::Suspend(_) | Next::SoftStop(_) | Next::OutputDue => {
            false
        }
    }
}

/// Counts what is in a run's journal now.
///
/// # Errors
/// It is more than a run may remember, or than there is room for beside the others: in words.
pub(super) fn count(
    journal: &[Entry],
    record: &OpenDecision,
    remembered: &mut Option<Held<'static>>,
) -> Result<(), String> {
    let size: usize = journal.iter().map(Entry::size).sum();
    if size > MOST_JOURNAL {
        return Err(format!(
            "what it has said and been told is {size} bytes; a run may remember {MOST_JOURNAL}"
        ));
    }
    if size <= FREE {
        return Ok(());
    }
    let held = remembered.get_or_insert_with(|| {
        let (tenant, user) = (record.tenant.to_string(), record.user.to_string());
        Held::new(Cow::Owned(Arc::clone(&REMEMBERED)), tenant, user, COPIES)
    });
    held.grow_to(size).map_err(|exceeded| {
        format!("what it has said and been told is {size} bytes, and there is no room for that now beside other runs: {exceeded}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ActionId;
    use crate::engine::Ending;

    /// Promises 3 and 7: no limit of memory hides that a call was begun, or what came of it.
    #[test]
    fn a_run_does_not_end_for_its_size_where_that_would_hide_a_call() {
        let begun = [Entry::Started {
            call: ActionId::new(),
            at_us: 1,
            child: None,
        }];
        let said = || Next::End(Ending::Responded("Done.".to_owned()));
        assert!(may_end(&Next::Ask, &begun) && may_end(&said(), &[]));
        for next in [Next::Recover(vec![]), Next::Act(vec![]), Next::Suspend(vec![]), said()] {
            assert!(!may_end(&next, &begun), "{next:?}");
        }
    }
}
