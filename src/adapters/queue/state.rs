//! Whether the queue is available, judged by the results of the last pushes and heartbeats. No I/O.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::meters;

/// Why the queue is down; `None` while it is up.
pub(super) struct State(Mutex<Option<Arc<str>>>);

impl State {
    /// Not up yet, but without an error.
    pub(super) fn starting() -> Self {
        meters::up().set(0.0);
        Self(Mutex::new(None))
    }

    /// The database answered.
    pub(super) fn up(&self) {
        meters::up().set(1.0);
        if self.lock().take().is_some() {
            tracing::info!("the queue of runs is available again");
        }
    }

    /// The database did not answer, or returned an error. Logs only the first failure in a row. Returns the reason.
    pub(super) fn down(&self, reason: &str) -> Arc<str> {
        meters::up().set(0.0);
        let reason: Arc<str> = reason.into();
        if self.lock().replace(Arc::clone(&reason)).is_none() {
            tracing::error!(%reason, "the queue of runs is unavailable; background runs wait until it is back");
        }
        reason
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
