//! Decisions whose close could not be kept for later: only their ids are, for recovery to close them.

use std::sync::{Mutex, PoisonError};

use super::op::Op;
use crate::domain::ids::DecisionId;

/// The ids; 16 bytes each.
#[derive(Default)]
pub(super) struct Lost(Mutex<Vec<DecisionId>>);

impl Lost {
    /// Notes what `op` leaves open, if anything.
    pub(super) fn note(&self, op: &Op) {
        if let Op::Close(decision) = op
            && decision.opened
        {
            tracing::error!(decision = %decision.open.id, "the outcome of an open decision is lost; recovery will close it");
            metrics::counter!("gavel_store_lost_total").increment(1);
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(decision.open.id);
        }
    }

    /// Takes them all.
    pub(super) fn take(&self) -> Vec<DecisionId> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
