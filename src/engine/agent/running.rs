//! The runs that this process works on: who watches them, how they are cancelled, what they have not said yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::domain::ids::RunId;
use crate::engine::live::Live;

/// By their ids; runs that another one called among them.
#[derive(Default)]
pub struct Running(Mutex<HashMap<RunId, (Live, CancellationToken)>>);

/// Keeps a run among those that this process works on.
pub struct Unfinished<'a> {
    running: &'a Running,
    run: RunId,
}

impl Running {
    /// From now on, until what comes back is dropped.
    #[must_use]
    pub fn begin(&self, run: RunId, live: Live, cancel: CancellationToken) -> Unfinished<'_> {
        self.lock().insert(run, (live, cancel));
        Unfinished { running: self, run }
    }

    /// Where its watchers are told.
    #[must_use]
    pub fn live(&self, run: RunId) -> Option<Live> {
        self.lock().get(&run).map(|(live, _)| live.clone())
    }

    /// Cancels it, if this process works on it.
    pub fn cancel(&self, run: RunId) {
        if let Some((_, cancel)) = self.lock().get(&run) {
            cancel.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, (Live, CancellationToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.running.lock().remove(&self.run);
    }
}
