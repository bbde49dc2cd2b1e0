//! Claims of idempotency keys: one protocol for every request that takes a key.

use std::sync::Arc;

use super::records::{OpenDecision, StoredAnswer};
use crate::domain::ids::RunId;

/// A claim of an `Idempotency-Key`, for 24 h, and longer while the run that it created is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Hex SHA-256 over caller, tenant, user, route and key.
    pub scope: Arc<str>,
    /// Hex SHA-256 of the request's body.
    pub fingerprint: Arc<str>,
}

/// What the first request with a key leads to.
#[derive(Clone, Debug)]
pub enum Claimant {
    /// A decision, which the claim opens.
    Decision(Box<OpenDecision>),
    /// An operation on a run that is harmless to repeat.
    Run(RunId),
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Claimed by this request, or by one that is harmless to repeat: continue.
    New,
    /// The first request is still running.
    Running,
    /// The first request was completed; this was its answer.
    Answered(StoredAnswer),
    /// The first request led to this run.
    Run(RunId),
    /// The same key was used with another body.
    Mismatch,
}
