//! Creates runs: each with its quota, its admission, its row and its open decision.

use std::sync::Arc;

use tracing::Instrument;

use super::{Begun, RunError, Runs};
use crate::domain::budget::{Exceeded, Share};
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::ids::RunId;
use crate::ports::quota::QuotaState;
use crate::ports::runs::{Created, NewRun};
use crate::surfaces::{OutcomeUnknown, StoreFailure};

impl Runs {
    /// Creates a run in a separate task. A client that disconnects meanwhile leaves neither a run without a worker nor a
    /// request without a decision.
    pub(super) async fn create(self: &Arc<Self>, new: NewRun, shed: Option<Exceeded>) -> Result<Begun, RunError> {
        let (run, decision) = (new.id, new.decision.clone());
        let created = self
            .working
            .spawn(Arc::clone(self).create_here(new, shed).in_current_span());
        match created.await {
            Ok(created) => created,
            Err(error) => {
                tracing::error!(run_id = %run, %error, "creating a run panicked");
                // If the run exists already, its decision is its own and remains unchanged.
                let recorded = self.not_begun(run, decision, DecisionType::RespondOnly, Outcome::Internal, None);
                if let Err(error) = recorded.await {
                    tracing::debug!(run_id = %run, %error, "no decision was added to the run's own");
                }
                Err(StoreFailure::OutcomeUnknown(creation(run)).into())
            }
        }
    }

    /// Checks quota and admission and writes the row. Then executes the run, here or on the process that takes the
    /// queue's job.
    async fn create_here(self: Arc<Self>, new: NewRun, shed: Option<Exceeded>) -> Result<Begun, RunError> {
        let (quota, place) = self.admit(&new, shed).await?;
        let (id, queued, asked) = (new.id, new.queued, self.now());
        let decision = new.decision.clone();
        let created = self.agents.runs.create(new).await;
        let mut begun = Begun {
            replayed: false,
            quota: Some(quota),
            ..Begun::earlier(id)
        };
        match created.map_err(|error| creation(id).after(&error))? {
            Created::New(Some(lease)) => {
                let (this, halt) = (Arc::clone(&self), self.halt_waited_for.clone());
                begun.driven = Some(self.working.spawn(async move {
                    if this.hold(lease, asked, halt).await {
                        // In a separate task: callers that wait for the first part are answered now.
                        let that = Arc::clone(&this);
                        this.working.spawn(async move {
                            that.take_up(id).await;
                            drop(place);
                        });
                    }
                }));
            }
            Created::New(None) => {
                begun.waits_its_turn = !queued;
                self.work_waits();
            }
            Created::Replayed(run) => {
                begun.run = run;
                begun.replayed = true;
            }
            Created::Mismatch => return Err(StoreFailure::KeyReused.into()),
            // The run to resume was deleted by the retention since it was read, or the user has no such thread.
            Created::NothingToResume | Created::NoThread => return Err(StoreFailure::NotFound.into()),
            Created::NotPaused(status) => return Err(RunError::NotPaused(status)),
            Created::ResumedBy(by) => return Err(RunError::ResumedBy(by)),
            Created::ThreadBusy(run) => {
                let detail = Some(format!("run {run} of the thread is active").into());
                self.record(decision, DecisionType::Refuse, Outcome::Overloaded, detail)
                    .await?;
                return Err(RunError::ThreadBusy(run));
            }
            // A run without a parent has no lease to lose.
            Created::LeaseLost => return Err(StoreFailure::Unavailable.into()),
        }
        Ok(begun)
    }

    /// Takes from the user's quota and, for a run that its caller waits for, a place. A request without either is
    /// recorded as refused.
    async fn admit(&self, new: &NewRun, shed: Option<Exceeded>) -> Result<(QuotaState, Option<Share>), RunError> {
        let quota = self.quota.take(&new.decision.tenant, &new.decision.user).await;
        if !quota.allowed {
            self.refuse(new, Outcome::RateLimited, None).await?;
            return Err(RunError::RateLimited(quota));
        }
        if self.working.is_closed() || self.halt.is_cancelled() || shed.is_some() {
            self.refuse(new, Outcome::Overloaded, shed).await?;
            return Err(RunError::Overloaded);
        }
        if new.queued {
            return Ok((quota, None));
        }
        let (tenant, user) = (new.decision.tenant.as_str(), new.decision.user.as_str());
        match self.admission.take(tenant, user, 1) {
            Ok(place) => Ok((quota, Some(place))),
            Err(exceeded) => {
                self.refuse(new, Outcome::Overloaded, Some(exceeded)).await?;
                Err(RunError::Overloaded)
            }
        }
    }
}

fn creation(run: RunId) -> OutcomeUnknown {
    let detail = format!(
        "It is unknown whether run {run} was created. Look for it before you send the request again, or send it again with \
         the same Idempotency-Key."
    );
    OutcomeUnknown::new(Some(run), detail)
}
