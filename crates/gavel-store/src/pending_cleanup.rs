//! What remains to be done for decisions and runs whose ops were not acknowledged or could not be written, and cannot
//! be queued either.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::metrics;
use super::op::Op;
use crate::domain::ids::{DecisionId, RunId};
use crate::ports::commit::Writer;

/// Makes the rows of a decision or run true again, given what its caller knows. In the order of execution: what was not
/// begun must not be taken for lost, and a decision is marked as unanswered last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cleanup {
    /// The opening of the row was not acknowledged, so no work was started: closes it and frees its claim.
    Abandon(DecisionId, Option<Arc<str>>),
    /// The creation of the run was not acknowledged, so no worker starts it: ends it, and frees its claim.
    AbandonRun(RunId, Option<Arc<str>>),
    /// The close of an open row was lost: closes it based on its intents.
    CloseLost(DecisionId),
    /// The record of the decision was not acknowledged, so the caller received no answer: notes that in its row.
    MarkUnanswered(DecisionId),
}

impl Cleanup {
    /// What remains to be done if `op` was not written, and will not be.
    fn after(op: &Op) -> Option<Self> {
        match op {
            Op::Cleanup(cleanup) => Some(cleanup.clone()),
            Op::Commit(commit) => {
                let closed = commit.closed()?;
                match commit.writer {
                    Writer::Process if !closed.opened => return None,
                    Writer::Process => {
                        let decision = closed.open.id;
                        tracing::error!(%decision, "the outcome of an open decision is lost; recovery will close it");
                    }
                    Writer::Holder { run, .. } => {
                        tracing::error!(%run, "the end of a run could not be recorded; another process continues the run when its lease expires");
                    }
                }
                metrics::lost().increment(1);
                (commit.writer == Writer::Process).then_some(Self::CloseLost(closed.open.id))
            }
            _ => None,
        }
    }
}

/// The remaining cleanups.
#[derive(Default)]
pub(super) struct PendingCleanup(Mutex<BTreeSet<Cleanup>>);

impl PendingCleanup {
    /// Notes what remains to be done because of `op`, if anything. It may be noted twice.
    pub(super) fn note(&self, op: &Op) {
        self.lock().extend(Cleanup::after(op));
    }

    /// Removes and returns what remains, in order.
    pub(super) fn take(&self) -> impl Iterator<Item = Op> {
        std::mem::take(&mut *self.lock()).into_iter().map(Op::Cleanup)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Cleanup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_acknowledged_is_not_forgotten_in_a_long_outage() {
        let pending = PendingCleanup::default();
        let (open, unacknowledged) = (DecisionId::new(), DecisionId::new());
        let expected = [
            Cleanup::CloseLost(open),
            Cleanup::CloseLost(unacknowledged),
            Cleanup::MarkUnanswered(unacknowledged),
        ];
        // Regardless of what else is noted about it, and when.
        for cleanup in expected.iter().rev() {
            pending.note(&Op::Cleanup(cleanup.clone()));
        }
        pending.note(&Op::RenewLease);
        assert_eq!(left(&pending), expected);
        assert!(left(&pending).is_empty());
    }

    /// Promise: recorded. The answers "not recorded" and "not started" must become true. So both are abandoned as soon as
    /// the store is available, however many records wait, with their claims, and nothing of them is in doubt.
    #[test]
    fn what_was_not_begun_is_abandoned_after_a_long_outage_too() {
        let pending = PendingCleanup::default();
        let (decision, scope): (_, Option<Arc<str>>) = (DecisionId::new(), Some("scope".into()));
        let expected = [
            Cleanup::Abandon(decision, scope.clone()),
            Cleanup::AbandonRun(RunId::new(), scope),
            Cleanup::CloseLost(decision),
        ];
        for cleanup in expected.iter().rev().chain(&expected) {
            pending.note(&Op::Cleanup(cleanup.clone()));
        }
        assert_eq!(left(&pending), expected);
    }

    fn left(pending: &PendingCleanup) -> Vec<Cleanup> {
        let cleanup = |op| match op {
            Op::Cleanup(cleanup) => cleanup,
            other => unreachable!("{other:?}"),
        };
        pending.take().map(cleanup).collect()
    }
}
