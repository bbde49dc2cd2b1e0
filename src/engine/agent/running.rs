//! The runs that this process works on: who watches them, how they are cancelled, what they have not said yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::domain::ids::RunId;
use crate::engine::live::Live;

/// By their ids; runs that another one called among them.
#[derive(Default)]
pub struct Running {
    runs: Mutex<HashMap<RunId, (Live, CancellationToken)>>,
    /// Runs that are waited for here. The sender sends nothing: it is dropped when the work begins.
    awaited: Mutex<HashMap<RunId, watch::Sender<()>>>,
}

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
        self.awaited().remove(&run);
        Unfinished { running: self, run }
    }

    /// Waits until this process begins to work on a run, from now on.
    #[must_use]
    pub fn begins(&self, run: RunId) -> Begins<'_> {
        let mut awaited = self.awaited();
        let begun = awaited.entry(run).or_insert_with(|| watch::Sender::new(()));
        Begins {
            running: self,
            run,
            begun: begun.subscribe(),
        }
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

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, (Live, CancellationToken)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<RunId, watch::Sender<()>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of the work on a run, waited for.
pub struct Begins<'a> {
    running: &'a Running,
    run: RunId,
    begun: watch::Receiver<()>,
}

impl Begins<'_> {
    /// Returns when the work has begun. It may return for nothing: look at the run.
    pub async fn wait(mut self) {
        // An error is the sender that was dropped.
        let _ = self.begun.changed().await;
    }
}

impl Drop for Begins<'_> {
    fn drop(&mut self) {
        let mut awaited = self.running.awaited();
        // The last one that waits.
        if awaited.get(&self.run).is_some_and(|begun| begun.receiver_count() <= 1) {
            awaited.remove(&self.run);
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.running.lock().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An approval is answered as soon as its run continues: what waits here asks no store again and again.
    #[tokio::test]
    async fn the_beginning_of_a_run_wakes_those_that_wait_for_it_and_no_others() {
        let (running, run, other) = (Running::default(), RunId::new(), RunId::new());
        let (first, second, elsewhere) = (running.begins(run), running.begins(run), running.begins(other));
        drop(running.begins(run));
        let _working = running.begin(run, Live::new(run), CancellationToken::new());
        first.wait().await;
        second.wait().await;
        let waited = tokio::time::timeout(Duration::from_millis(20), elsewhere.wait());
        assert!(waited.await.is_err());
        assert!(
            running.awaited().is_empty(),
            "nothing is kept of runs that nothing waits for"
        );
    }
}
