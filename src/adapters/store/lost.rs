//! What could not be kept for later: of a decision's close only its id is, for recovery to close it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::meters;
use super::op::Op;
use crate::domain::ids::DecisionId;

/// What is left to do for each decision.
#[derive(Default)]
pub(super) struct Lost(Mutex<BTreeSet<(DecisionId, Left)>>);

/// In the order in which it is done: what was not answered is told as such in the end.
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
                if let Some(run) = op.ends() {
                    tracing::error!(%run, "the end of a run is lost; it is taken up again once its lease has run out");
                    meters::lost().increment(1);
                }
                return;
            }
            Op::Abandon(decision, _) | Op::Lose(decision) => (*decision, Left::Lose),
            Op::Unsay(decision) => (*decision, Left::Unsay),
            _ => return,
        };
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lost.insert((decision, left));
    }

    /// Takes it all.
    pub(super) fn take(&self) -> impl Iterator<Item = Op> {
        let lost = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        lost.into_iter().map(|(decision, left)| match left {
            Left::Lose => Op::Lose(decision),
            Left::Unsay => Op::Unsay(decision),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
