//! What could not be kept for later. Of a decision's close only its id is, for recovery to close it; a run that nobody
//! heard of is kept whole, since whoever finds it would begin it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::meters;
use super::op::Op;
use super::runs::{Abandoned, RunOp};
use crate::domain::ids::DecisionId;

/// What is left to do.
#[derive(Default)]
pub(super) struct Lost(Mutex<AllLeft>);

#[derive(Default)]
struct AllLeft {
    decisions: BTreeSet<(DecisionId, Left)>,
    runs: BTreeSet<Abandoned>,
}

/// For a decision, in the order in which it is done: what was not answered is told as such in the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// Its row may be open.
    Lose,
    /// Its row may tell of an answer that nobody got.
    Unsay,
}

impl Lost {
    /// Notes what `op` leaves to be done, if anything. A decision may be noted twice.
    pub(super) fn note(&self, op: &Op) {
        let (decision, left) = match op {
            Op::Close(decision) if decision.opened => {
                let decision = decision.open.id;
                tracing::error!(%decision, "the outcome of an open decision is lost; recovery will close it");
                meters::lost().increment(1);
                (decision, Left::Lose)
            }
            Op::Run(op) => {
                match &**op {
                    RunOp::Finish(run) => {
                        tracing::error!(run = %run.run, "the end of a run could not be recorded; another process continues the run when its lease expires");
                        meters::lost().increment(1);
                    }
                    // Its caller was told that it was not begun.
                    RunOp::Abandon(run) => drop(self.lock().runs.insert(run.clone())),
                    _ => {}
                }
                return;
            }
            Op::Abandon(decision, _) | Op::Lose(decision) => (*decision, Left::Lose),
            Op::Unsay(decision) => (*decision, Left::Unsay),
            _ => return,
        };
        self.lock().decisions.insert((decision, left));
    }

    /// Takes it all.
    pub(super) fn take(&self) -> impl Iterator<Item = Op> {
        let AllLeft { decisions, runs } = std::mem::take(&mut *self.lock());
        let decisions = decisions.into_iter().map(|(decision, left)| match left {
            Left::Lose => Op::Lose(decision),
            Left::Unsay => Op::Unsay(decision),
        });
        let runs = runs.into_iter().map(|run| Op::Run(Box::new(RunOp::Abandon(run))));
        decisions.chain(runs)
    }

    fn lock(&self) -> MutexGuard<'_, AllLeft> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::RunId;

    #[test]
    fn what_nobody_heard_of_is_not_forgotten_in_a_long_outage() {
        let lost = Lost::default();
        let (open, unheard) = (DecisionId::new(), DecisionId::new());
        lost.note(&Op::Abandon(open, None));
        lost.note(&Op::Lose(open));
        // Whatever else is noted of it, and when.
        lost.note(&Op::Unsay(unheard));
        lost.note(&Op::Lose(unheard));
        lost.note(&Op::Beat);
        let left: Vec<_> = lost.take().collect();
        let told =
            matches!(left[..], [Op::Lose(a), Op::Lose(b), Op::Unsay(c)] if (a, b, c) == (open, unheard, unheard));
        assert!(told, "{}", left.len());
        assert_eq!(lost.take().count(), 0);
    }

    /// Promise 1: "not begun" was said, so it is made true as soon as the store is back, however many records wait.
    #[test]
    fn a_run_that_nobody_heard_of_is_abandoned_after_a_long_outage_too() {
        let lost = Lost::default();
        let abandoned = Abandoned {
            run: RunId::new(),
            scope: Some("scope".into()),
            resumes: Some(RunId::new()),
        };
        for _ in 0..2 {
            lost.note(&Op::Run(Box::new(RunOp::Abandon(abandoned.clone()))));
        }
        let left: Vec<_> = lost.take().collect();
        let [Op::Run(op)] = &left[..] else {
            panic!("{}", left.len())
        };
        assert!(matches!(&**op, RunOp::Abandon(kept) if *kept == abandoned), "{op:?}");
        assert_eq!(lost.take().count(), 0);
    }
}
