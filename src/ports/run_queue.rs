//! The queue of background runs. It wakes workers and nothing else: the run's row is the truth, so a job that comes
//! twice, late or never does no harm (DESIGN.md section 8).

use std::sync::Arc;

use super::BoxFuture;
use crate::domain::ids::RunId;

/// Hands runs to workers, of this process or of another on the same database.
pub trait RunQueue: Send + Sync {
    /// Returns when the job is durable.
    fn push(&self, run: RunId) -> BoxFuture<'_, Result<(), QueueError>>;
}

/// Works on runs.
pub trait RunWorker: Send + Sync {
    /// A run waits: takes up the one whose turn it is, perhaps another one, and drives it to its end, and those that wait after it.
    fn work(&self, run: RunId) -> BoxFuture<'_, ()>;
}

/// The queue cannot be reached; in the words of whoever keeps it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of runs is unavailable: {0}")]
pub struct QueueError(pub Arc<str>);
