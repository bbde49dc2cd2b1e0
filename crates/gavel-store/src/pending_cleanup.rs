//! Ops that could not be queued for a retry. For the close of a decision only its id is kept, and recovery closes it.
//! For an abandoned run the whole op is kept, since a worker that finds the run would start it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::metrics;
use super::op::Op;
use crate::domain::ids::{DecisionId, RunId};
use crate::ports::commit::Writer;

/// The remaining ops.
#[derive(Default)]
pub(super) struct PendingCleanup(Mutex<AllLeft>);

#[derive(Default)]
struct AllLeft {
    decisions: BTreeSet<(DecisionId, Left)>,
    /// With the scope of the claim.
    runs: BTreeSet<(RunId, Option<Arc<str>>)>,
}

/// What remains to do for a decision, in execution order: marking it unanswered comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// Its row may be open.
    Lose,
    /// Its row may show an answer that the caller did not receive.
    Unsay,
}

impl PendingCleanup {
    /// Notes what remains to be done because of `op`, if anything. A decision may be noted twice.
    pub(super) fn note(&self, op: &Op) {
        let (decision, left) = match op {
            Op::Commit(commit) => match (commit.writer, commit.closed()) {
                (Writer::Process, Some(decision)) if decision.opened => {
                    let decision = decision.open.id;
                    tracing::error!(%decision, "the outcome of an open decision is lost; recovery will close it");
                    metrics::lost().increment(1);
                    (decision, Left::Lose)
                }
                (Writer::Holder { run, .. }, Some(_)) => {
                    tracing::error!(%run, "the end of a run could not be recorded; another process continues the run when its lease expires");
                    metrics::lost().increment(1);
                    return;
                }
                (Writer::Process | Writer::Holder { .. }, _) => return,
            },
            // Its caller received the answer that the run did not start.
            Op::AbandonRun(run, scope) => {
                self.lock().runs.insert((*run, scope.clone()));
                return;
            }
            Op::Abandon(decision, _) | Op::CloseLost(decision) => (*decision, Left::Lose),
            Op::MarkUnanswered(decision) => (*decision, Left::Unsay),
            _ => return,
        };
        self.lock().decisions.insert((decision, left));
    }

    /// Removes and returns all remaining ops.
    pub(super) fn take(&self) -> impl Iterator<Item = Op> {
        let AllLeft { decisions, runs } = std::mem::take(&mut *self.lock());
        let decisions = decisions.into_iter().map(|(decision, left)| match left {
            Left::Lose => Op::CloseLost(decision),
            Left::Unsay => Op::MarkUnanswered(decision),
        });
        let runs = runs.into_iter().map(|(run, scope)| Op::AbandonRun(run, scope));
        decisions.chain(runs)
    }

    fn lock(&self) -> MutexGuard<'_, AllLeft> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_acknowledged_is_not_forgotten_in_a_long_outage() {
        let lost = PendingCleanup::default();
        let (open, unacknowledged) = (DecisionId::new(), DecisionId::new());
        lost.note(&Op::Abandon(open, None));
        lost.note(&Op::CloseLost(open));
        // Regardless of what else is noted about it, and when.
        lost.note(&Op::MarkUnanswered(unacknowledged));
        lost.note(&Op::CloseLost(unacknowledged));
        lost.note(&Op::RenewLease);
        let left: Vec<_> = lost.take().collect();
        let reported = matches!(left[..], [Op::CloseLost(a), Op::CloseLost(b), Op::MarkUnanswered(c)] if (a, b, c) == (open, unacknowledged, unacknowledged));
        assert!(reported, "{}", left.len());
        assert_eq!(lost.take().count(), 0);
    }

    /// Promise: recorded. The answer "not started" must become true. So the run is abandoned as soon as the store is
    /// available, however many records wait.
    #[test]
    fn an_unacknowledged_run_is_abandoned_after_a_long_outage_too() {
        let lost = PendingCleanup::default();
        let (run, scope): (_, Option<Arc<str>>) = (RunId::new(), Some("scope".into()));
        for _ in 0..2 {
            lost.note(&Op::AbandonRun(run, scope.clone()));
        }
        let left: Vec<_> = lost.take().collect();
        assert!(
            matches!(&left[..], [Op::AbandonRun(left, of)] if (*left, of) == (run, &scope)),
            "{left:?}"
        );
        assert_eq!(lost.take().count(), 0);
    }
}
