//! The use cases: gavel's library API. The HTTP layer extracts the input, calls one of these, and answers.
//!
//! [`runs`] is the life of a run, for every surface. [`agents`] and [`threads`] begin runs, and [`approvals`] wakes
//! them; they know [`runs`] and [`definitions`], and not each other. [`chat`] keeps nothing, so it uses neither.

pub mod agents;
pub mod approvals;
pub mod caller;
pub mod chat;
pub mod decisions;
pub mod definitions;
pub mod planning;
pub mod request;
pub mod runs;
pub mod sessions;
pub mod threads;

use std::borrow::Cow;

use crate::domain::definition::Approval;
use crate::domain::ids::RunId;
use crate::domain::policy::{PLANNING, THREAD};
use crate::ports::records::{QueryError, RecordError};

/// The least approval that the surface of this name demands.
pub fn floor(surface: &str) -> Approval {
    match surface {
        THREAD => threads::FLOOR,
        PLANNING => planning::FLOOR,
        _ => Approval::Never,
    }
}

/// What the store answers instead of a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// No such object, or it belongs to another user.
    #[error("not found")]
    NotFound,
    /// The idempotency key was used with another request.
    #[error("this idempotency key was used with another request")]
    KeyReused,
    /// A query is invalid or takes too long.
    #[error(transparent)]
    Query(QueryError),
    /// The store is unavailable; nothing was done.
    #[error("the record store is unavailable")]
    Unavailable,
    /// A commit was started and its outcome is unknown: it may have succeeded.
    #[error(transparent)]
    OutcomeUnknown(OutcomeUnknown),
}

/// A change that may have been made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct OutcomeUnknown {
    /// The run concerned.
    pub run: Option<RunId>,
    /// Which change, and how the caller finds out, in sentences.
    pub detail: Cow<'static, str>,
}

impl OutcomeUnknown {
    fn new(run: Option<RunId>, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self { run, detail }
    }

    /// The failure of a write of this change. Only a commit that was started leaves the outcome unknown.
    fn after(self, error: &RecordError) -> StoreFailure {
        match error {
            RecordError::Unavailable(_) => {
                tracing::error!(%error, "a request was rejected, since nothing can be recorded");
                StoreFailure::Unavailable
            }
            RecordError::Uncertain(_) => {
                tracing::error!(%error, "a request ended, and its outcome is unknown: {self}");
                StoreFailure::OutcomeUnknown(self)
            }
        }
    }
}

/// An unavailable store is one failure for all queries, so that callers can retry.
impl From<QueryError> for StoreFailure {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Unavailable(reason) => {
                tracing::error!(%reason, "the record store is unavailable for a query");
                Self::Unavailable
            }
            QueryError::Invalid { .. } | QueryError::TooSlow { .. } => Self::Query(error),
        }
    }
}
