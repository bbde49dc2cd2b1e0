//! Begins runs, and finds those that the same request began before. A run that is paused, or failed since its processes
//! were lost, is begun again: the same run continues, with a fresh budget and its own deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::{Runs, read_settings};
use crate::api::problem::{Code, FieldError};
use crate::api::runs::{AgentRun, InDoubtCall};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::budget::{Exceeded, Scope, Share};
use crate::domain::canonical;
use crate::domain::decision::Outcome;
use crate::domain::definition::ArgumentError;
use crate::domain::ids::{ActionId, RunId, UserId};
use crate::engine::agent::{Fresh, Given, Settings};
use crate::engine::limits::MOST_STEPS;
use crate::engine::log;
use crate::engine::snapshot::DefinitionSnapshot;
use crate::ports::claims::{Claimant, Claimed};
use crate::ports::commit::{Commit, Fact};
use crate::ports::quota::QuotaState;
use crate::ports::records::{ClosedDecision, OpenDecision};
use crate::ports::runs::{
    InSession, InThread, NewRun, Origin, Parent, Reopen, ReopenedFor, Settled, Started, StoredRun,
};
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Chosen;
use crate::surfaces::problem::Problem;
use crate::surfaces::request::{Claim, RequestMeta};

/// A run to begin, with what its surface decides about it.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The name of its surface in the decision log and in policies.
    pub surface: &'static str,
    /// Where it comes from.
    pub origin: Origin<InThread, Parent, InSession>,
    /// Its agent.
    pub agent: Chosen,
    /// The inputs, to be checked against the definition.
    pub inputs: Map<String, Value>,
    /// Its limits and settings.
    pub settings: Settings,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

impl Runs {
    /// Creates and starts a run.
    ///
    /// # Errors
    /// The inputs are invalid; otherwise see [`Problem`]. Later errors are reported by the run itself.
    pub async fn begin(self: &Arc<Self>, caller: &Caller, user: UserId, begin: Begin) -> Result<Begun, Problem> {
        let id = RunId::new();
        let Chosen {
            project,
            name,
            version,
            snapshot,
        } = begin.agent;
        let own = snapshot.get(&name).ok_or(Code::NotFound)?;
        let inputs = own.definition.check_arguments(begin.inputs);
        let inputs = inputs.map_err(|errors| Problem::from(errors.into_iter().map(field).collect::<Vec<_>>()))?;
        let inputs = Value::Object(inputs);
        let input: Arc<RawValue> = Arc::from(canonical::to_raw(&inputs));
        let mut new = NewRun {
            id,
            project,
            agent: Arc::clone(&name),
            version,
            decision: OpenDecision {
                conversation: match &begin.origin {
                    Origin::Thread(place) => place.thread.into(),
                    Origin::Session(place) => place.session.into(),
                    Origin::Trigger | Origin::Called(_) => id.into(),
                },
                message: Arc::from(input.get()),
                definition_hash: Arc::clone(&own.definition.hash),
                requested_model: self.agents.requested_model(&own.definition),
                agent_id: Some(name),
                time_zone: begin.settings.zone.map(|zone| zone.name().into()),
                ..begin.meta.open(
                    (caller.tenant.clone(), user),
                    begin.surface,
                    id.decision(),
                    self.now_us(),
                )
            },
            origin: begin.origin,
            snapshot: snapshot.snapshot(),
            input,
            settings: begin.settings.to_raw(),
            entries: Vec::new(),
            queued: begin.meta.background,
            claim: begin.meta.idempotency,
        };
        let given = match inputs {
            Value::Object(input) if !new.queued => Some(Given {
                bundle: snapshot,
                settings: begin.settings,
                input,
            }),
            _ => None,
        };
        let fresh = given.map(|given| Fresh::of(&self.agents, &mut new, given));
        let start = Start {
            run: id,
            queued: new.queued,
            decision: new.decision.clone(),
            how: How::New(Box::new(new)),
            fresh,
        };
        self.start(start, begin.meta.shed).await
    }

    /// The run that the same request created before. It uses no quota, and is found even if the request could create no
    /// run now. If two such requests arrive at once, one creates the run: writing the row decides which one.
    ///
    /// # Errors
    /// The key was used with another request; the store is unavailable.
    pub async fn begun_before(&self, meta: &RequestMeta) -> Result<Option<Begun>, Problem> {
        match self.claimed(meta).await? {
            None => Ok(None),
            Some(Claimed::Run(run)) => Ok(Some(Begun::earlier(run))),
            // The scope names the route, so no chat request has claimed it.
            Some(_) => Err(Code::IdempotencyKeyReused.into()),
        }
    }

    /// What the same request led to before; `None` if it has not claimed its key.
    pub(crate) async fn claimed(&self, meta: &RequestMeta) -> Result<Option<Claimed>, Problem> {
        let Some(key) = &meta.idempotency else {
            return Ok(None);
        };
        match self.agents.runs.claimed(key).await? {
            Some(Claimed::Mismatch) => Err(Code::IdempotencyKeyReused.into()),
            claimed => Ok(claimed.filter(|claimed| *claimed != Claimed::New)),
        }
    }

    /// Claims the idempotency key of a request about a run that is harmless to repeat.
    pub(crate) async fn claim(&self, key: Option<&Claim>, run: RunId, unknown: Problem) -> Result<(), Problem> {
        let Some(key) = key else { return Ok(()) };
        let recorder = &self.agents.engine.recorder;
        match recorder.claim(key.clone(), Claimant::Run(run)).await {
            Ok(Claimed::New) => Ok(()),
            Ok(Claimed::Run(_) | Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => {
                Err(Code::IdempotencyKeyReused.into())
            }
            Err(error) => Err(unknown.after(&error)),
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
    fn unknown(&self) -> Problem {
        let (run, made) = match self.how {
            How::New(_) => (self.run, "created"),
            How::Again(_) => (self.run, "resumed"),
        };
        let detail = format!(
            "It is unknown whether run {run} was {made}. Look for it before you send the request again, or send it again \
             with the same Idempotency-Key."
        );
        Problem::outcome_unknown(Some(run), detail)
    }
}

impl Runs {
    /// Creates or reopens a run in a separate task. A client that disconnects meanwhile leaves neither a run without a
    /// worker nor a request without a decision.
    pub(super) async fn start(self: &Arc<Self>, start: Start, shed: Option<Exceeded>) -> Result<Begun, Problem> {
        let (run, decision, unknown) = (start.run, start.decision.clone(), start.unknown());
        let started = self
            .working
            .spawn(Arc::clone(self).start_here(start, shed).in_current_span());
        match started.await {
            Ok(started) => started,
            Err(error) => {
                tracing::error!(run_id = %run, %error, "starting a run panicked");
                // If the run exists already, its decision is its own and remains unchanged.
                if let Err(error) = self.refuse(&decision, Outcome::Internal, None).await {
                    tracing::debug!(run_id = %run, %error, "no decision was added to the run's own");
                }
                Err(unknown)
            }
        }
    }

    /// Checks quota and admission and writes the row. Then executes the run, here or on the process that takes the
    /// queue's job.
    async fn start_here(self: Arc<Self>, start: Start, shed: Option<Exceeded>) -> Result<Begun, Problem> {
        let (quota, place) = self.admit(&start, shed).await?;
        let (unknown, asked) = (start.unknown(), self.now());
        let Start {
            run,
            queued,
            decision,
            how,
            fresh,
        } = start;
        let mut begun = Begun {
            replayed: false,
            quota: Some(quota),
            ..Begun::earlier(run)
        };
        let started = match how {
            How::New(new) => self.agents.runs.create(*new).await,
            How::Again(again) => self.agents.runs.reopen(*again).await,
        };
        match started.map_err(|error| unknown.after(&error))? {
            Started::Now(Some(lease)) => {
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
            Started::Now(None) => {
                begun.waits_its_turn = !queued;
                self.work_waits();
            }
            Started::Before(earlier) => {
                begun.run = earlier;
                begun.replayed = true;
            }
            Started::Mismatch => return Err(Code::IdempotencyKeyReused.into()),
            // A run to be reopened may have been deleted by the retention since it was read.
            Started::NotFound => return Err(Code::NotFound.into()),
            Started::SessionMoved(status, version) => return Err(Problem::session_moved(status, version)),
            Started::TooManySessions(limit) => return Err(too_many_sessions(limit)),
            Started::NotPaused(status) => return Err(not_paused(status)),
            Started::ThreadBusy(run) => {
                let detail = Some(format!("run {run} of the thread is active").into());
                self.record(decision, Outcome::Overloaded, detail).await?;
                let detail = format!(
                    "Run {run} of this thread is in progress or waits for approval; resolve its approvals, send the message \
                     after the run has ended, or cancel that run."
                );
                return Err(Problem::new(Code::ThreadBusy, detail).about(run));
            }
            // A run without a parent has no lease to lose.
            Started::LeaseLost => return Err(Code::RecordUnavailable.into()),
        }
        Ok(begun)
    }

    /// Takes from the user's quota and, for a run that its caller waits for, a place. A request without either is
    /// recorded as refused.
    async fn admit(&self, start: &Start, shed: Option<Exceeded>) -> Result<(QuotaState, Option<Share>), Problem> {
        let decision = &start.decision;
        let quota = self.quota.take(&decision.tenant, &decision.user).await;
        if !quota.allowed {
            self.refuse(decision, Outcome::RateLimited, None).await?;
            return Err(quota.into());
        }
        if self.working.is_closed() || self.halt.is_cancelled() || shed.is_some() {
            self.refuse(decision, Outcome::Overloaded, shed).await?;
            return Err(Code::Overloaded.into());
        }
        if start.queued {
            return Ok((quota, None));
        }
        match self.admission.take(decision.tenant.as_str(), decision.user.as_str(), 1) {
            Ok(place) => Ok((quota, Some(place))),
            Err(exceeded) => {
                self.refuse(decision, Outcome::Overloaded, Some(exceeded)).await?;
                Err(Code::Overloaded.into())
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
    ) -> Result<(), Problem> {
        let quota = self.quota.take(&caller.tenant, &user).await;
        let id = RunId::new().decision();
        let open = OpenDecision {
            message: Arc::from(words),
            requested_model: Arc::from(self.agents.engine.model.default_model()),
            ..meta.open((caller.tenant.clone(), user), surface, id, self.now_us())
        };
        if !quota.allowed {
            self.record(open, Outcome::RateLimited, None).await?;
            return Err(quota.into());
        }
        self.record(open, outcome, detail).await?;
        Ok(())
    }

    async fn refuse(&self, open: &OpenDecision, outcome: Outcome, why: Option<Exceeded>) -> Result<(), Problem> {
        // Whether a thread belongs to the user is checked only when the run is created.
        let open = OpenDecision {
            conversation: open.id.into(),
            ..open.clone()
        };
        self.record(open, outcome, why.map(|exceeded| exceeded.to_string().into()))
            .await
    }

    async fn record(
        &self,
        open: OpenDecision,
        outcome: Outcome,
        error_detail: Option<Arc<str>>,
    ) -> Result<(), Problem> {
        let refused = ClosedDecision {
            error_detail,
            ..ClosedDecision::refused(open, outcome.decision_type(false), outcome)
        };
        let commit = Commit::of_process(vec![Fact::Closed(refused)]);
        let closed = self.agents.engine.recorder.commit(commit).await;
        closed.map(drop).map_err(|error| {
            tracing::error!(%error, "a request was rejected, since nothing can be recorded");
            Code::RecordUnavailable.into()
        })
    }
}

/// The settings of a resume.
#[derive(Clone, Debug)]
pub struct Resume {
    /// For each in-doubt call: did it have its effect?
    pub settled: BTreeMap<ActionId, bool>,
    /// Replaces the definition's time limit.
    pub timeout: Option<Duration>,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

impl Runs {
    /// Resumes a run that is paused, or failed since its processes were lost. The session of a plan continues with it.
    ///
    /// # Errors
    /// [`Problem`]: the run does not exist, is not paused, has no steps left, its deadline has passed, or it has
    /// unsettled in-doubt calls.
    pub async fn resume(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<UserId>,
        run: RunId,
        resume: Resume,
    ) -> Result<Begun, Problem> {
        if let Some(before) = self.begun_before(&resume.meta).await? {
            return Ok(before);
        }
        let shed = resume.meta.shed;
        let paused = self.stored(caller, user.as_ref(), run).await?;
        if let Origin::Called((parent, _)) = paused.origin {
            let run = self.outermost(parent).await?;
            let detail = format!("The run was called by another run; resume run {run} instead.");
            return Err(Problem::new(Code::PartOfRun, detail).about(run));
        }
        let before = read_settings(&paused)?;
        let lost = paused.end.stop_reason == Some(StopReason::ProcessLost)
            && paused.origin.thread().is_none()
            && (paused.origin.session().is_none() || before.execution.is_some());
        if paused.end.status != RunStatus::Paused && !lost {
            return Err(not_paused(paused.end.status));
        }
        if let Some(until_us) = before.until_us
            && until_us <= self.now_us()
        {
            return Err(Problem::deadline_passed(until_us));
        }
        check_settled(&paused, before.execution.is_some(), &resume.settled)?;
        let settings = self.settings(&paused, before, &resume)?;
        let reopen = Reopen {
            run,
            attempt: paused.attempt,
            place: ReopenedFor::Caller {
                queued: resume.meta.background,
                settled: Settled {
                    by: caller.name_for(user.as_ref()).into(),
                    calls: resume.settled,
                },
                claim: resume.meta.idempotency,
            },
            session: paused.origin.session().copied(),
            settings: settings.to_raw(),
            entry: log::resumed(paused.end.steps, paused.end.usage),
            at_us: self.now_us(),
        };
        let start = Start {
            run,
            queued: resume.meta.background,
            // A refused request is a decision of its own.
            decision: OpenDecision {
                id: RunId::new().decision(),
                message: Arc::from(paused.input.get()),
                request_id: resume.meta.request_id,
                created_at: self.now_us(),
                ..paused.decision
            },
            how: How::Again(Box::new(reopen)),
            fresh: None,
        };
        self.start(start, shed).await
    }

    /// A fresh budget, within the steps that are left over all resumes. A session keeps its own.
    fn settings(&self, paused: &StoredRun, before: Settings, resume: &Resume) -> Result<Settings, Problem> {
        if before.execution.is_some() {
            let settled = resume.settled.clone();
            return Ok(Settings { settled, ..before });
        }
        let bundle = DefinitionSnapshot::read(&paused.snapshot).map_err(|error| {
            tracing::error!(run_id = %paused.id, %error, "the definition of a run cannot be read");
            Code::RecordUnavailable
        })?;
        let definition = &bundle.get(&paused.agent).ok_or(Code::NotFound)?.definition;
        let mut settings = Settings::top(definition, resume.timeout, resume.meta.traceparent.clone());
        (settings.zone, settings.until_us) = (before.zone, before.until_us);
        if let Some(most) = definition.limits.max_turns {
            let left = MOST_STEPS.saturating_sub(paused.end.steps);
            if left == 0 {
                return Err(Problem::new(
                    Code::StepLimitExceeded,
                    "The steps of this run are exhausted over all its resumes; trigger the agent again.",
                ));
            }
            settings.steps = Some(most.min(left));
        }
        settings.settled = resume.settled.clone();
        Ok(settings)
    }

    /// The outermost run above this one.
    async fn outermost(&self, mut run: RunId) -> Result<RunId, Problem> {
        while let Some(state) = self.agents.runs.run_state(run).await? {
            match state.origin {
                Origin::Called((parent, _)) => run = parent,
                Origin::Trigger | Origin::Thread(_) | Origin::Session(_) => break,
            }
        }
        Ok(run)
    }
}

/// Every in-doubt call must be settled, and no other call. A session waits for that itself, at its end.
fn check_settled(paused: &StoredRun, waits: bool, settled: &BTreeMap<ActionId, bool>) -> Result<(), Problem> {
    let known = |id: &ActionId| paused.end.in_doubt.iter().any(|call| call.action_id == *id);
    let unknown: Vec<_> = settled
        .keys()
        .filter(|id| !known(id))
        .map(|id| FieldError::new(format!("/settled/{id}"), "is not an in-doubt call of this run"))
        .collect();
    if !unknown.is_empty() {
        return Err(Problem::from(unknown));
    }
    let open = paused
        .end
        .in_doubt
        .iter()
        .filter(|call| !settled.contains_key(&call.action_id));
    let mut open = open.map(in_doubt).peekable();
    if open.peek().is_none() || waits {
        Ok(())
    } else {
        Err(Problem::new(
            Code::CallsInDoubt,
            "The outcome of these tool calls is unknown. Find out, and report each one in settled: true if it happened, \
             false if it did not.",
        )
        .with(|more| more.errors = open.collect()))
    }
}

fn in_doubt(call: &InDoubtCall) -> FieldError {
    let detail = format!(
        "is missing; set it to true if the call of {} happened, else to false",
        call.tool
    );
    FieldError::new(format!("/settled/{}", call.action_id), detail)
}

fn not_paused(status: RunStatus) -> Problem {
    let detail =
        format!("Only a run that is paused, or whose processes were lost, can be resumed; this one is {status}.");
    Problem::new(Code::NotPaused, detail)
}

/// There are as many planning sessions as this limit allows.
fn too_many_sessions(exceeded: Exceeded) -> Problem {
    let whose = if exceeded.scope == Scope::User { "_per_user" } else { "" };
    let detail =
        format!("{exceeded} (planning.sessions{whose}). Cancel one, or send the request again after one has ended.");
    Problem::new(Code::TooManySessions, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session lasts minutes or days, so a client must not try again at once.
    #[test]
    fn too_many_sessions_can_be_tried_again_later() {
        let unit = "planning sessions at work";
        for (scope, limit, named) in [
            (
                Scope::User,
                3,
                "3 planning sessions at work at once are allowed for a user (planning.sessions_per_user). Cancel one",
            ),
            (
                Scope::Tenant,
                18,
                "18 planning sessions at work at once are allowed for a tenant (planning.sessions). Cancel one",
            ),
        ] {
            let problem = too_many_sessions(Exceeded { scope, limit, unit });
            assert_eq!((problem.code.status(), problem.code.retry_after_s()), (429, Some(60)));
            assert!(problem.to_string().contains(named), "{problem}");
        }
    }
}
