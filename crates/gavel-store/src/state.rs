//! Whether the store is available, judged by the results of the last writes. No I/O.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::metrics;

/// Shared by all writers. Down: a caller's deadline passed without a commit. Up: a commit succeeded.
pub(super) struct State {
    /// Why the store is down.
    down: ArcSwapOption<Arc<str>>,
    /// The error of the last failed transaction, used as the reason.
    last_fault: ArcSwapOption<Arc<str>>,
}

impl State {
    pub(super) fn up() -> Self {
        metrics::up().set(1.0);
        Self {
            down: ArcSwapOption::empty(),
            last_fault: ArcSwapOption::empty(),
        }
    }

    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.down.load().as_deref().map(Arc::clone)
    }

    /// A commit succeeded.
    pub(super) fn committed(&self) {
        if self.last_fault.load().is_some() {
            self.last_fault.store(None);
        }
        if self.down.swap_if_set() {
            tracing::info!("the record store is available again");
            metrics::up().set(1.0);
        }
    }

    /// A transaction failed; a retry may still succeed before any caller's deadline.
    pub(super) fn faulted(&self, reason: &Arc<str>) {
        self.last_fault.store(Some(Arc::new(Arc::clone(reason))));
    }

    /// A caller's deadline passed. Returns the reason.
    pub(super) fn gave_up(&self) -> Arc<str> {
        let reason: Arc<str> = match self.last_fault.load().as_deref() {
            Some(fault) => Arc::clone(fault),
            None => "no commit in time".into(),
        };
        self.take_down(&reason);
        reason
    }

    pub(super) fn take_down(&self, reason: &Arc<str>) {
        let before = self.down.swap(Some(Arc::new(Arc::clone(reason))));
        if before.is_none() {
            tracing::error!(%reason, "the record store is unavailable");
            metrics::up().set(0.0);
        }
    }
}

trait SwapIfSet {
    /// Clears the value and returns whether there was one. Loads first, since the value is nearly always empty.
    fn swap_if_set(&self) -> bool;
}

impl<T> SwapIfSet for ArcSwapOption<T> {
    fn swap_if_set(&self) -> bool {
        self.load().is_some() && self.swap(None).is_some()
    }
}
