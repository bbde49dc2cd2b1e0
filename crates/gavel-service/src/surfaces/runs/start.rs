//! Starts runs, new or reopened: each with its quota, its admission, its row and its open decision.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tracing::Instrument;

use super::{RunError, Runs, conversation};
use crate::api::runs::AgentRun;
use crate::domain::budget::{Exceeded, Share};
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::{RunId, UserId};
use crate::engine::agent::Fresh;
use crate::ports::commit::{Commit, Fact};
use crate::ports::quota::QuotaState;
use crate::ports::records::{ClosedDecision, OpenDecision};
use crate::ports::runs::{Created, Lease, NewRun, Reopen, Reopened};
use crate::surfaces::caller::Caller;
use crate::surfaces::request::RequestMeta;
use crate::surfaces::{OutcomeUnknown, StoreFailure};

/// A run to be created or reopened.
pub(super) struct Start {
    pub(super) run: RunId,
    /// True if its caller does not wait for it.
    pub(super) queued: bool,
    /// The decision that is recorded if the request is refused.
    pub(super) decision: OpenDecision,
    pub(super) how: How,
    /// What this process knows of a new run that it executes at once.
    pub(super) fresh: Option<Fresh>,
}

pub(super) enum How {
    New(Box<NewRun>),
    Again(Box<Reopen>),
}

/// Where a run is after its row is written.
enum Started {
    /// This process works on it.
    Here(Lease),
    /// It waits for a worker, possibly until other runs of its thread have ended.
    Queued { waits_its_turn: bool },
    /// The same request led to this run before.
    Before(RunId),
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
    /// Ends when this process has executed the run as far as it can. Returns the run if it has ended, and this process
    /// knows its whole row.
    pub(super) driven: Option<JoinHandle<Option<Box<AgentRun>>>>,
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

impl Start {
    fn unknown(&self) -> OutcomeUnknown {
        let (run, made) = match self.how {
            How::New(_) => (self.run, "created"),
            How::Again(_) => (self.run, "resumed"),
        };
        let detail = format!(
            "It is unknown whether run {run} was {made}. Look for it before you send the request again, or send it again \
             with the same Idempotency-Key."
        );
        OutcomeUnknown::new(Some(run), detail)
    }
}

impl Runs {
    /// Creates or reopens a run in a separate task. A client that disconnects meanwhile leaves neither a run without a
    /// worker nor a request without a decision.
    pub(super) async fn start(self: &Arc<Self>, start: Start, shed: Option<Exceeded>) -> Result<Begun, RunError> {
        let (run, decision, unknown) = (start.run, start.decision.clone(), start.unknown());
        let started = self
            .working
            .spawn(Arc::clone(self).start_here(start, shed).in_current_span());
        match started.await {
            Ok(started) => started,
            Err(error) => {
                tracing::error!(run_id = %run, %error, "starting a run panicked");
                // If the run exists already, its decision is its own and remains unchanged.
                let recorded = self.not_begun(decision, DecisionType::RespondOnly, Outcome::Internal, None);
                if let Err(error) = recorded.await {
                    tracing::debug!(run_id = %run, %error, "no decision was added to the run's own");
                }
                Err(StoreFailure::OutcomeUnknown(unknown).into())
            }
        }
    }

    /// Checks quota and admission and writes the row. Then executes the run, here or on the process that takes the
    /// queue's job.
    async fn start_here(self: Arc<Self>, mut start: Start, shed: Option<Exceeded>) -> Result<Begun, RunError> {
        let (quota, place) = self.admit(&start, shed).await?;
        let fresh = start.fresh.take();
        let (run, asked) = (start.run, self.now());
        let mut begun = Begun {
            replayed: false,
            quota: Some(quota),
            ..Begun::earlier(run)
        };
        match self.write(start).await? {
            Started::Here(lease) => {
                let (this, halt) = (Arc::clone(&self), self.halt_waited_for.clone());
                begun.driven = Some(self.working.spawn(async move {
                    let left = this.hold(lease, asked, halt, fresh).await;
                    if left.again {
                        // In a separate task: callers that wait for the first part are answered now.
                        let that = Arc::clone(&this);
                        this.working.spawn(async move {
                            that.take_up(run).await;
                            drop(place);
                        });
                    }
                    left.shown
                }));
            }
            Started::Queued { waits_its_turn } => {
                begun.waits_its_turn = waits_its_turn;
                self.work_waits();
            }
            Started::Before(earlier) => {
                begun.run = earlier;
                begun.replayed = true;
            }
        }
        Ok(begun)
    }

    /// Writes the row of a run.
    async fn write(&self, start: Start) -> Result<Started, RunError> {
        let (unknown, queued) = (start.unknown(), start.queued);
        let runs = &self.agents.runs;
        match start.how {
            How::New(new) => match runs.create(*new).await.map_err(|error| unknown.after(&error))? {
                Created::New(Some(lease)) => Ok(Started::Here(lease)),
                Created::New(None) => Ok(Started::Queued {
                    waits_its_turn: !queued,
                }),
                Created::Replayed(run) => Ok(Started::Before(run)),
                Created::Mismatch => Err(StoreFailure::KeyReused.into()),
                Created::NoThread | Created::NoSession => Err(StoreFailure::NotFound.into()),
                Created::SessionMoved(status, version) => Err(RunError::SessionMoved(status, version)),
                Created::TooManySessions(limit) => Err(RunError::TooManySessions(limit)),
                Created::ThreadBusy(run) => {
                    let detail = Some(format!("run {run} of the thread is active").into());
                    self.record(start.decision, DecisionType::Refuse, Outcome::Overloaded, detail)
                        .await?;
                    Err(RunError::ThreadBusy(run))
                }
                // A run without a parent has no lease to lose.
                Created::LeaseLost => Err(StoreFailure::Unavailable.into()),
            },
            How::Again(again) => match runs.reopen(*again).await.map_err(|error| unknown.after(&error))? {
                Reopened::Yes(Some(lease)) => Ok(Started::Here(lease)),
                Reopened::Yes(None) => Ok(Started::Queued { waits_its_turn: false }),
                Reopened::Replayed => Ok(Started::Before(start.run)),
                Reopened::Mismatch => Err(StoreFailure::KeyReused.into()),
                Reopened::NotPaused(status) => Err(RunError::NotPaused(status)),
                Reopened::TooManySessions(limit) => Err(RunError::TooManySessions(limit)),
                // The run was deleted by the retention since it was read.
                Reopened::NotFound => Err(StoreFailure::NotFound.into()),
                Reopened::LeaseLost => Err(StoreFailure::Unavailable.into()),
            },
        }
    }

    /// Takes from the user's quota and, for a run that its caller waits for, a place. A request without either is
    /// recorded as refused.
    async fn admit(&self, start: &Start, shed: Option<Exceeded>) -> Result<(QuotaState, Option<Share>), RunError> {
        let decision = &start.decision;
        let quota = self.quota.take(&decision.tenant, &decision.user).await;
        if !quota.allowed {
            self.refuse(decision, Outcome::RateLimited, None).await?;
            return Err(RunError::RateLimited(quota));
        }
        if self.working.is_closed() || self.halt.is_cancelled() || shed.is_some() {
            self.refuse(decision, Outcome::Overloaded, shed).await?;
            return Err(RunError::Overloaded);
        }
        if start.queued {
            return Ok((quota, None));
        }
        match self.admission.take(decision.tenant.as_str(), decision.user.as_str(), 1) {
            Ok(place) => Ok((quota, Some(place))),
            Err(exceeded) => {
                self.refuse(decision, Outcome::Overloaded, Some(exceeded)).await?;
                Err(RunError::Overloaded)
            }
        }
    }
}

// Records requests for which no run is begun: every request is a decision (promise: recorded).

impl Runs {
    /// Records a request that its surface refuses. The decision has these words and no more. It names no conversation
    /// of the user: it was not checked whether that is theirs.
    ///
    /// # Errors
    /// The user's quota is exceeded; nothing can be recorded.
    pub(crate) async fn without_run(
        &self,
        caller: &Caller,
        user: UserId,
        surface: &'static str,
        (words, meta): (&str, &RequestMeta),
        (outcome, detail): (Outcome, Option<Arc<str>>),
    ) -> Result<(), RunError> {
        let quota = self.quota.take(&caller.tenant, &user).await;
        let id = RunId::new();
        let open = OpenDecision {
            id: id.decision(),
            tenant: caller.tenant.clone(),
            surface,
            user,
            conversation: conversation(id),
            message: Arc::from(words),
            definition_hash: Arc::from(""),
            requested_model: Arc::from(self.agents.engine.model.default_model()),
            request_id: Arc::clone(&meta.request_id),
            created_at: self.now_us(),
        };
        if !quota.allowed {
            self.record(open, DecisionType::Refuse, Outcome::RateLimited, None)
                .await?;
            return Err(RunError::RateLimited(quota));
        }
        self.record(open, DecisionType::RespondOnly, outcome, detail).await?;
        Ok(())
    }

    pub(super) async fn refuse(
        &self,
        open: &OpenDecision,
        outcome: Outcome,
        why: Option<Exceeded>,
    ) -> Result<(), StoreFailure> {
        self.not_begun(open.clone(), DecisionType::Refuse, outcome, why).await
    }

    pub(super) async fn not_begun(
        &self,
        open: OpenDecision,
        decision_type: DecisionType,
        outcome: Outcome,
        why: Option<Exceeded>,
    ) -> Result<(), StoreFailure> {
        // Whether a thread belongs to the user is checked only when the run is created.
        let conversation = conversation(open.id);
        let open = OpenDecision { conversation, ..open };
        let why = why.map(|exceeded| exceeded.to_string().into());
        self.record(open, decision_type, outcome, why).await
    }

    pub(super) async fn record(
        &self,
        open: OpenDecision,
        decision_type: DecisionType,
        outcome: Outcome,
        error_detail: Option<Arc<str>>,
    ) -> Result<(), StoreFailure> {
        let refused = ClosedDecision {
            open,
            decision_type,
            outcome,
            intent: Arc::from("none"),
            response: Arc::from(""),
            model: None,
            service_tier: None,
            iterations: 0,
            usage: Usage::default(),
            duration_us: 0,
            error_detail,
            calls: Vec::new(),
            answer: None,
            opened: false,
        };
        let commit = Commit::of_process(vec![Fact::Closed(refused)]);
        let closed = self.agents.engine.recorder.commit(commit).await;
        closed.map(drop).map_err(|error| {
            tracing::error!(%error, "a request was rejected, since nothing can be recorded");
            StoreFailure::Unavailable
        })
    }
}
