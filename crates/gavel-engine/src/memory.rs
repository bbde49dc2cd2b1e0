//! The memory budget of all runs together.
//!
//! The limit of a single run does not bound their sum. So each run takes a share of one budget for its journal, and
//! returns it when it ends or waits. Small journals are not counted.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use super::limits::MOST_JOURNAL;
use super::next::Next;
use crate::domain::budget::{Budget, FREE, Held, Pool};
use crate::domain::journal::Entry;
use crate::ports::records::OpenDecision;

/// How many copies of a journal are in memory: the journal itself, and the model request or the write.
const COPIES: usize = 2;

static REMEMBERED: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(Pool::Journals, Pool::Journals.limits(0)));

/// May a run end because of its size before this step? Not while a call has no result, which would be lost, and not
/// instead of an end that reports effects.
pub(super) fn may_end(next: &Next<'_>, journal: &[Entry]) -> bool {
    match next {
        Next::Ask | Next::AskAfter(_) | Next::Step(..) | Next::Open | Next::Phase(..) => true,
        Next::End(_) => !journal.iter().any(|entry| entry.started().is_some()),
        Next::Act(_)
        | Next::Recover(_)
        | Next::Refuse(..)
        | Next::Reflected(..)
        | Next::Suspend(_)
        | Next::AwaitSettlement(_)
        | Next::SoftStop(_)
        | Next::OutputDue => false,
    }
}

/// Counts the size of a run's journal.
///
/// # Errors
/// The journal exceeds the limit of a run, or the memory that is left; in words.
pub(super) fn count(
    journal: &[Entry],
    record: &OpenDecision,
    remembered: &mut Option<Held<'static>>,
) -> Result<(), String> {
    let size: usize = journal.iter().map(Entry::size).sum();
    if size > MOST_JOURNAL {
        return Err(format!(
            "its conversation is {size} bytes long; at most {MOST_JOURNAL} are allowed"
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
        format!("its conversation is {size} bytes long, and other runs use the memory for it: {exceeded}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ending;
    use crate::domain::ids::ActionId;

    /// Promises: at most once, truthful states. No memory limit hides a started call or its outcome.
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
