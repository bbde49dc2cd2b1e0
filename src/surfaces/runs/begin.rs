//! Begins runs: each with its quota, its admission, its row and its open decision.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::{RunError, Runs, conversation};
use crate::domain::budget::{Exceeded, Share};
use crate::domain::canonical;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::definition::ArgumentError;
use crate::domain::ids::{ProjectId, RunId, UserId};
use crate::engine::agent::{DefinitionSnapshot, Settings};
use crate::ports::claims::{Claimant, Claimed};
use crate::ports::quota::QuotaState;
use crate::ports::records::OpenDecision;
use crate::ports::runs::{Created, InThread, NewRun, Origin, Parent};
use crate::surfaces::caller::Caller;
use crate::surfaces::request::{Claim, FieldError, RequestMeta};
use crate::surfaces::{OutcomeUnknown, StoreFailure};

/// A run to begin, with what its surface decides about it.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The name of its surface in the decision log and in policies.
    pub surface: &'static str,
    /// Where it comes from.
    pub origin: Origin<InThread, Parent>,
    /// The project of the agent.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The version of its definition, where it has any.
    pub version: Option<i64>,
    /// The definitions that it needs, with its own.
    pub snapshot: DefinitionSnapshot,
    /// The inputs, to be checked against the definition.
    pub inputs: Map<String, Value>,
    /// Its limits and settings.
    pub settings: Settings,
    /// True if the caller does not wait for the run.
    pub background: bool,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

/// A run that exists.
#[derive(Debug)]
pub struct Begun {
    /// Its id.
    pub run: RunId,
    /// Did the same request create it before?
    pub replayed: bool,
    /// The caller's quota after this request.
    pub quota: Option<QuotaState>,
    /// Does it wait until other runs of its thread have ended?
    pub waits_its_turn: bool,
    /// Ends when this process has executed the run as far as it can.
    pub(super) driven: Option<JoinHandle<()>>,
}

impl Begun {
    /// A run that was begun by an earlier request.
    pub(super) const fn earlier(run: RunId) -> Self {
        Self {
            run,
            replayed: true,
            quota: None,
            waits_its_turn: false,
            driven: None,
        }
    }
}

impl Runs {
    /// Creates and starts a run.
    ///
    /// # Errors
    /// The inputs are invalid; otherwise see [`RunError`]. Later errors are reported by the run itself.
    pub async fn begin(self: &Arc<Self>, caller: &Caller, user: UserId, begin: Begin) -> Result<Begun, RunError> {
        let id = RunId::new();
        let own = begin.snapshot.get(&begin.agent).ok_or(StoreFailure::NotFound)?;
        let inputs = own.definition.check_arguments(begin.inputs);
        let inputs = inputs.map_err(|errors| RunError::Invalid(errors.into_iter().map(field).collect()))?;
        let input: Arc<RawValue> = Arc::from(canonical::to_raw(&Value::Object(inputs)));
        let new = NewRun {
            id,
            project: begin.project,
            agent: begin.agent,
            version: begin.version,
            decision: OpenDecision {
                id: id.decision(),
                tenant: caller.tenant.clone(),
                surface: begin.surface,
                user,
                conversation: match begin.origin.thread() {
                    Some(place) => conversation(place.thread),
                    None => conversation(id),
                },
                message: Arc::from(input.get()),
                definition_hash: Arc::clone(&own.definition.hash),
                request_id: Arc::clone(&begin.meta.request_id),
                created_at: self.now_us(),
            },
            origin: begin.origin,
            resumes: None,
            settled: None,
            snapshot: begin.snapshot.snapshot(),
            input,
            settings: begin.settings.to_raw(),
            queued: begin.background,
            claim: begin.meta.idempotency,
        };
        self.create(new, begin.meta.shed).await
    }

    /// The run that the same request created before. It uses no quota, and is found even if the request could create no
    /// run now. If two such requests arrive at once, one creates the run: writing the row decides which one.
    ///
    /// # Errors
    /// The key was used with another request; the store is unavailable.
    pub async fn begun_before(&self, meta: &RequestMeta) -> Result<Option<Begun>, StoreFailure> {
        let Some(key) = &meta.idempotency else {
            return Ok(None);
        };
        match self.agents.runs.claimed(key).await? {
            None | Some(Claimed::New) => Ok(None),
            Some(Claimed::Run(run)) => Ok(Some(Begun::earlier(run))),
            // The scope names the route, so no chat request has claimed it.
            Some(Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => Err(StoreFailure::KeyReused),
        }
    }

    /// Claims the idempotency key of a request about a run that is harmless to repeat.
    pub(in crate::surfaces) async fn claim(
        &self,
        key: Option<&Claim>,
        run: RunId,
        unknown: OutcomeUnknown,
    ) -> Result<(), StoreFailure> {
        let Some(key) = key else { return Ok(()) };
        let recorder = &self.agents.engine.recorder;
        match recorder.claim(key.clone(), Claimant::Run(run)).await {
            Ok(Claimed::New) => Ok(()),
            Ok(Claimed::Run(_) | Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => {
                Err(StoreFailure::KeyReused)
            }
            Err(error) => Err(unknown.after(&error)),
        }
    }

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
            // The run is durable, so its caller does not have to wait for a slow queue.
            Created::New(None) => {
                begun.waits_its_turn = !queued;
                let this = Arc::clone(&self);
                self.working.spawn(async move { this.push(id).await });
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

    /// An unavailable queue only delays the run: the sweep finds it.
    pub(super) async fn push(&self, run: RunId) {
        if let Some(queue) = self.queue.get()
            && let Err(error) = queue.push(run).await
        {
            tracing::warn!(run_id = %run, %error, "a run could not be queued; the sweep will find it");
        }
    }
}

/// The place of an input is its name, in the body of the request.
fn field(error: ArgumentError) -> FieldError {
    let pointer = match error.name.is_empty() {
        true => String::new(),
        false => format!("/{}", error.name),
    };
    FieldError::new(pointer, error.detail)
}

fn creation(run: RunId) -> OutcomeUnknown {
    let detail = format!(
        "It is unknown whether run {run} was created. Look for it before you send the request again, or send it again with \
         the same Idempotency-Key."
    );
    OutcomeUnknown::new(Some(run), detail)
}
