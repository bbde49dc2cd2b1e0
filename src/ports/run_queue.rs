//! The queue of background runs. It only wakes workers: the run's row is authoritative, so a job that arrives twice,
//! late or never does no harm (DESIGN.md section 8).

use std::sync::Arc;

use super::BoxFuture;
use crate::domain::ids::RunId;

/// Sends runs to workers, of this process or of another process on the same database.
pub trait RunQueue: Send + Sync {
    /// Returns when the job is durable.
    fn push(&self, run: RunId) -> BoxFuture<'_, Result<(), QueueError>>;
}

/// Executes runs.
pub trait RunWorker: Send + Sync {
    /// A run is waiting. The worker claims the run whose turn it is, which may be another one, drives it to its end,
    /// and then the runs that wait after it.
    fn work(&self, run: RunId) -> BoxFuture<'_, ()>;
}

/// The queue is unavailable; the message comes from the implementation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of runs is unavailable: {0}")]
pub struct QueueError(pub Arc<str>);
