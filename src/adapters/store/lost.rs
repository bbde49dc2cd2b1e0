//! Decisions whose close could not be kept for later: only their ids are, for recovery to close them.

use std::sync::{Mutex, PoisonError};

use super::op::Op;
use crate::domain::ids::DecisionId;

/// The ids; 16 bytes each.
#[derive(Default)]
pub(super) struct Lost(Mutex<Vec<DecisionId>>);

impl Lost {
    /// Notes what `op` leaves open, if anything. A decision may be noted twice; it is closed once.
    pub(super) fn note(&self, op: &Op) {
        let decision = match op {
            Op::Close(decision) if decision.opened => {
                let decision = decision.open.id;
                tracing::error!(%decision, "the outcome of an open decision is lost; recovery will close it");
                metrics::counter!("gavel_store_lost_total").increment(1);
                decision
            }
            Op::Abandon(decision, _) | Op::Lose(decision) => *decision,
            _ => return,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(decision);
    }

    /// Takes them all.
    pub(super) fn take(&self) -> Vec<DecisionId> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
