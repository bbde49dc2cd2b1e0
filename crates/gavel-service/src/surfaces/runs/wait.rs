//! Waits for runs, on any process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{AcquireError, SemaphorePermit};

use super::watch::{self, Watch};
use super::{Begun, RunError, Runs};
use crate::api::runs::AgentRun;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{RunId, UserId};
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;

/// How long to wait for a cancelled run to end.
const TO_END: Duration = Duration::from_secs(2);

impl Runs {
    /// Waits until a run has ended or waits for an approval.
    ///
    /// # Errors
    /// The store is unavailable; the run cannot be recorded.
    pub async fn wait(&self, caller: &Caller, begun: &mut Begun) -> Result<AgentRun, RunError> {
        if let Some(driven) = begun.driven.take() {
            match driven.await {
                // Its end is committed.
                Ok(Some(run)) => return Ok(*run),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(run_id = %begun.run, %error, "the execution of a run stopped before the run ended");
                }
            }
        }
        self.rests(caller, begun.run).await
    }

    /// Like [`Runs::wait`], for a run that continues after one of its approvals was resolved.
    ///
    /// # Errors
    /// See [`Runs::wait`].
    pub async fn rests(&self, caller: &Caller, run: RunId) -> Result<AgentRun, RunError> {
        let rests = |status: RunStatus| status.has_ended() || status == RunStatus::AwaitingConfirmation;
        self.until(caller, run, rests).await
    }

    /// Waits until a run has ended, also while it waits for an approval; or until the service stops.
    pub(crate) async fn ended(&self, caller: &Caller, run: RunId) -> Result<AgentRun, RunError> {
        self.until(caller, run, RunStatus::has_ended).await
    }

    /// Waits a moment for a cancelled run to end. The run ends by itself, even if it takes longer.
    pub(crate) async fn ends(&self, caller: &Caller, run: RunId) {
        match tokio::time::timeout(TO_END, self.ended(caller, run)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(run_id = %run, %error, "waiting for a cancelled run failed"),
            Err(_) => tracing::debug!(run_id = %run, "a cancelled run has not ended yet"),
        }
    }

    /// Waits until a run has a certain status. Gives up on a run that repeatedly cannot be recorded.
    async fn until(
        &self,
        caller: &Caller,
        run: RunId,
        enough: impl Fn(RunStatus) -> bool,
    ) -> Result<AgentRun, RunError> {
        let mut patience = watch::LOOK;
        loop {
            // Subscribes before the read, so that no start is missed.
            let begins = self.agents.running.begins(run);
            let mut watch = self.agents.running.live(run).map(|live| live.watch().1);
            let found = {
                let _look = self.looks.acquire().await;
                self.agents.runs.get(&caller.tenant, None, run).await?
            };
            let found = found.ok_or(StoreFailure::NotFound)?;
            // A run that stops with the service continues on another process, so waiting here is pointless.
            if enough(found.status) || self.cut.is_cancelled() {
                return Ok(found);
            }
            if self.unrecorded.is_hopeless(run) {
                return Err(RunError::Unrecorded(run));
            }
            tokio::select! {
                () = watch::pause(&mut watch, begins, &mut patience) => {}
                () = self.cut.cancelled() => {}
            }
        }
    }

    /// Waits a moment before a reader looks again whether something follows this run: no process announces that. The
    /// time grows with each call, as for readers of a run; it begins with zero. False: the service stops.
    pub(crate) async fn before_next_look(&self, run: RunId, patience: &mut Duration) -> bool {
        *patience = (*patience).max(watch::LOOK);
        let begins = self.agents.running.begins(run);
        let mut live = None;
        tokio::select! {
            () = watch::pause(&mut live, begins, patience) => true,
            () = self.cut.cancelled() => false,
        }
    }

    /// The right to read the store for a waiting caller, shared with the readers of runs.
    pub(crate) async fn look(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.looks.acquire().await
    }

    /// The error for an existing run that `error` prevented from being read. It reports possible unrecorded effects
    /// only for runs that this process could not record.
    #[must_use]
    pub fn unreadable(&self, run: RunId, error: impl Into<RunError>) -> RunError {
        let error = error.into();
        tracing::error!(run_id = %run, %error, "the state of a run cannot be read");
        if matches!(error, RunError::Unrecorded(_)) || self.unrecorded.has(run) {
            RunError::Unrecorded(run)
        } else {
            RunError::Unreadable(run)
        }
    }

    /// Streams the events of a run, after this number, until it has ended.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn watch(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        after: u64,
    ) -> Result<Watch, StoreFailure> {
        self.get(caller, user, run).await?;
        let (stop, looks) = (self.cut.clone(), Arc::clone(&self.looks));
        let (agents, unrecorded) = (Arc::clone(&self.agents), Arc::clone(&self.unrecorded));
        let tenant = caller.tenant.clone();
        Ok(Watch::new(agents, unrecorded, tenant, run, after, stop, looks))
    }
}
