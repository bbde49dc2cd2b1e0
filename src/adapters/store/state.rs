//! Is the store there? Told by what the last writes met; no I/O.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::meters;

/// Shared by everybody who writes. Down: somebody waited a whole deadline in vain. Up: a commit went through.
pub(super) struct State {
    /// Why it is down.
    down: ArcSwapOption<Arc<str>>,
    /// What the last failed transaction met, for the reason.
    last_fault: ArcSwapOption<Arc<str>>,
}

impl State {
    pub(super) fn up() -> Self {
        meters::up().set(1.0);
        Self {
            down: ArcSwapOption::empty(),
            last_fault: ArcSwapOption::empty(),
        }
    }

    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.down.load().as_deref().map(Arc::clone)
    }

    /// A commit went through.
    pub(super) fn committed(&self) {
        if self.last_fault.load().is_some() {
            self.last_fault.store(None);
        }
        if self.down.swap_if_set() {
            tracing::info!("the record store is available again");
            meters::up().set(1.0);
        }
    }

    /// A transaction failed; others may still go through before anybody's deadline.
    pub(super) fn faulted(&self, reason: &Arc<str>) {
        self.last_fault.store(Some(Arc::new(Arc::clone(reason))));
    }

    /// A deadline passed. Returns the reason, for the one who waited.
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
            meters::up().set(0.0);
        }
    }
}

trait SwapIfSet {
    /// Empties it; true when something was in it. Reads first, since it is nearly always empty.
    fn swap_if_set(&self) -> bool;
}

impl<T> SwapIfSet for ArcSwapOption<T> {
    fn swap_if_set(&self) -> bool {
        self.load().is_some() && self.swap(None).is_some()
    }
}
