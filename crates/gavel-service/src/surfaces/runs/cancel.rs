//! Cancels runs.

use std::sync::Arc;

use super::Runs;
use crate::api::runs::AgentRun;
use crate::domain::ids::{RunId, UserId};
use crate::surfaces::caller::Caller;
use crate::surfaces::request::Claim;
use crate::surfaces::{OutcomeUnknown, StoreFailure};

impl Runs {
    /// Cancels a run in this process, if it executes it. The store knows already that it is cancelled, so that other
    /// processes find out.
    pub(crate) fn interrupt(&self, run: RunId) {
        self.agents.running.cancel(run);
    }

    /// Cancels a run and its child runs, on any process. A run that has ended is unchanged.
    ///
    /// # Errors
    /// There is no such run; the key was used with another request; the store is unavailable, or the outcome unknown.
    pub async fn cancel(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        key: Option<&Claim>,
    ) -> Result<AgentRun, StoreFailure> {
        let found = self.get(caller, user, run).await?;
        self.claim(key, run, cancellation(run)).await?;
        if found.status.has_ended() {
            return Ok(found);
        }
        let asked = self.agents.runs.cancel(run, &caller.name_for(user)).await;
        asked.map_err(|error| cancellation(run).after(&error))?;
        tracing::info!(run_id = %run, by = %caller.name(), "the cancellation of a run was requested");
        self.agents.running.cancel(run);
        // A run that waits for an approval or for its turn has no worker that could end it.
        self.claim_resolved(run, &caller.tenant, &caller.name_for(user));
        // The cancellation is recorded, even if the run cannot be read now. The earlier state is a valid answer.
        Ok(self.get(caller, user, run).await.unwrap_or_else(|error| {
            tracing::warn!(run_id = %run, %error, "the state of a run to be cancelled cannot be read");
            found
        }))
    }
}

fn cancellation(run: RunId) -> OutcomeUnknown {
    let detail = format!(
        "It is unknown whether run {run} will be cancelled. Check its status; cancelling it again does no harm."
    );
    OutcomeUnknown::new(Some(run), detail)
}
