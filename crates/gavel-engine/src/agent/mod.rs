//! Agents: runs built from definitions, and runs that call other agents (D-R1 to D-R6, X-15).
//!
//! A child run has its own journal, decision and limits. It shares with its parent the call that it answers, the
//! parent's time limit and cancellation, and the lease of the outermost run.

mod call;
mod drive;
mod finish;
mod history;
mod prepare;
mod settings;
mod summary;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::finish::Ended;
pub use self::prepare::Given;
pub use super::limits::OnReject;
use super::run::Engine;
use crate::domain::definition::{Definition, Provider};
use crate::domain::ids::RunId;
use crate::live::Live;
use crate::ports::actions::Actions;
use crate::ports::model::Model;
use crate::ports::runs::Runs;
pub use drive::Fresh;
pub use settings::{Left, Round, Settings};

/// What every agent's run uses.
pub struct Agents {
    /// Model, tools, decision log and clock.
    pub engine: Engine,
    /// Models by provider, for definitions that name one.
    pub models: Models,
    /// The store of runs.
    pub runs: Arc<dyn Runs>,
    /// The store of approval requests and their resolutions.
    pub actions: Arc<dyn Actions>,
    /// How long an approval request is valid.
    pub approvals_expire: Duration,
    /// The runs that this process executes.
    pub running: Running,
}

/// The configured models of Google's services.
#[derive(Clone, Default)]
pub struct Models {
    /// The Developer API.
    pub gemini: Option<Arc<dyn Model>>,
    /// Vertex AI.
    pub vertex: Option<Arc<dyn Model>>,
    /// Does one model answer for all others (`GEMINI_MODEL=demo`)?
    pub one_for_all: bool,
}

impl Models {
    /// The model a definition asks for, if it names a provider.
    ///
    /// # Errors
    /// The provider is not configured; the error names the settings to set.
    pub fn of(&self, definition: &Definition) -> Result<Option<&Arc<dyn Model>>, String> {
        let (model, name, settings) = match definition.provider {
            None => return Ok(None),
            Some(_) if self.one_for_all => return Ok(None),
            Some(Provider::Gemini) => (&self.gemini, "gemini", "GEMINI_API_KEY"),
            Some(Provider::Vertex) => (&self.vertex, "vertex", "VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION"),
        };
        match model {
            Some(model) => Ok(Some(model)),
            None => Err(format!("its model provider {name} is not configured; set {settings}")),
        }
    }
}

/// Runs by id, including child runs. Clones share them.
#[derive(Clone, Default)]
pub struct Running(Arc<InProgress>);

#[derive(Default)]
struct InProgress {
    runs: Mutex<HashMap<RunId, (Live, CancellationToken)>>,
    /// Runs that tasks of this process wait for. The sender sends nothing: it is dropped when the run's execution
    /// starts.
    awaited: Mutex<HashMap<RunId, watch::Sender<()>>>,
}

/// Registers a run as executed by this process until it is dropped.
pub struct Unfinished {
    running: Running,
    run: RunId,
    live: Live,
}

impl Running {
    /// Registers a run, until the returned value is dropped.
    pub fn begin(&self, run: RunId, live: Live, cancel: CancellationToken) -> Unfinished {
        self.lock().insert(run, (live.clone(), cancel));
        self.awaited().remove(&run);
        Unfinished {
            running: self.clone(),
            run,
            live,
        }
    }

    /// Waits until this process starts to execute a run, from now on.
    pub fn begins(&self, run: RunId) -> Begins<'_> {
        let mut awaited = self.awaited();
        let begun = awaited.entry(run).or_insert_with(|| watch::Sender::new(()));
        Begins {
            running: self,
            run,
            begun: begun.subscribe(),
        }
    }

    /// The live channel of the run, for its watchers.
    pub fn live(&self, run: RunId) -> Option<Live> {
        self.lock().get(&run).map(|(live, _)| live.clone())
    }

    /// Cancels the run, if this process executes it.
    pub fn cancel(&self, run: RunId) {
        if let Some((_, cancel)) = self.lock().get(&run) {
            cancel.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, (Live, CancellationToken)>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<RunId, watch::Sender<()>>> {
        self.0.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the start of a run.
pub struct Begins<'a> {
    running: &'a Running,
    run: RunId,
    begun: watch::Receiver<()>,
}

impl Begins<'_> {
    /// Returns when the run has started. It may return spuriously: check the run.
    pub async fn wait(mut self) {
        // An error means that the sender was dropped.
        let _ = self.begun.changed().await;
    }
}

impl Drop for Begins<'_> {
    fn drop(&mut self) {
        let mut awaited = self.running.awaited();
        // This is the last waiter.
        if awaited.get(&self.run).is_some_and(|begun| begun.receiver_count() <= 1) {
            awaited.remove(&self.run);
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut runs = self.running.lock();
        // Another worker of this process may have registered the run since: one that waited for its turn.
        if runs.get(&self.run).is_some_and(|(live, _)| live.is(&self.live)) {
            runs.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod running_tests {
    use std::time::Duration;

    use super::*;

    /// A run that its creator gave up, because it has to wait for its turn, remains registered by its worker.
    #[test]
    fn a_registration_ends_only_with_its_own_worker() {
        let (running, run) = (Running::default(), RunId::new());
        let creator = running.begin(run, Live::new(run), CancellationToken::new());
        let worker = running.begin(run, Live::new(run), CancellationToken::new());
        drop(creator);
        assert!(running.live(run).is_some());
        drop(worker);
        assert!(running.live(run).is_none());
    }

    /// A caller that waits for a run after an approval is woken when it continues, without polling the store.
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
