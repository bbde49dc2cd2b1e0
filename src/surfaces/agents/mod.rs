//! The surface of declared agents (REQUIREMENTS D and X): they are triggered, watched, cancelled and resumed, and every
//! run is recorded.
//!
//! A run that a caller waits for is executed at once by the process that received the request. A background run is
//! queued, and executed by the process that claims it. Either way, the run's row is authoritative, and the run is
//! leased to the process that executes it. If that process dies, another one continues the run.

mod directory;
mod error;
mod inputs;
mod listed;
mod project;
mod told_turn;
mod watch;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono_tz::Tz;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

pub use directory::{DEFAULT_PROJECT, Directory, FileAgents};
pub use error::{AgentError, OutcomeUnknown};
pub use inputs::Inputs;
pub use listed::{AgentDetail, AgentInfo, AgentPage, Put, VersionDetail, VersionInfo, Versions};
pub use project::{Project, unavailable};
pub use watch::{Cursor, PlacedEvent, RunEvent, RunEventKind, Watch};
pub use work::Worker;

use super::caller::{Caller, Identity};
use super::chat::request::FieldError;
use super::chat::{Claim, RequestMeta};
use crate::domain::agent_run::{AgentRun, RunStatus};
use crate::domain::budget::{Budget, Exceeded, Limits};
use crate::domain::canonical;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::definition::answerer;
use crate::domain::ids::{ActionId, ConversationId, ProjectId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::WhileBusy;
use crate::engine::agent::{Agents, DefinitionSnapshot, OnReject, Settings};
use crate::engine::calls::{CallState, Calls};
use crate::engine::limits::MOST_STEPS;
use crate::ports::claims::{Claimant, Claimed};
use crate::ports::commit::{Commit, Fact};
use crate::ports::quota::Quota;
pub use crate::ports::quota::QuotaState;
use crate::ports::records::{ClosedDecision, OpenDecision, RecordError};
use crate::ports::run_queue::RunQueue;
use crate::ports::runs::{Created, NewRun, Origin, Settled, StoredRun};
pub use crate::ports::runs::{InThread, RunPage};
use crate::surfaces::decisions::ListQuery;

/// The surface's name in the decision log.
pub const SURFACE: &str = "agent";
/// The surface's name for runs of threads.
pub use super::threads::SURFACE as THREAD_SURFACE;
pub use crate::domain::agent_run::MOST_TIME;
/// How long to wait for a cancelled run to end.
const TO_END: Duration = Duration::from_secs(2);
/// Maximum concurrent store reads for waiting callers: the other read connections are for requests.
const LOOKS: usize = 2;

/// The surface with everything it uses.
pub struct AgentRuns {
    agents: Arc<Agents>,
    directory: Directory,
    quota: Arc<dyn Quota>,
    /// What happens to a thread's run when the user rejects a call.
    on_reject: OnReject,
    /// What happens to a message for a thread that has an active run.
    while_busy: WhileBusy,
    queue: OnceLock<Arc<dyn RunQueue>>,
    leases: work::Leases,
    unrecorded: Arc<work::Unrecorded>,
    /// Limits the runs that callers wait for.
    admission: Arc<Budget>,
    /// The background runs.
    background: work::Background,
    /// Limits the concurrent store reads of waiting callers.
    looks: Arc<Semaphore>,
    working: TaskTracker,
    halt: CancellationToken,
    halt_waited_for: CancellationToken,
    cut: CancellationToken,
    ended: CancellationToken,
}

/// How many runs a process executes at once.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce {
    /// Runs that callers wait for; further ones are rejected.
    pub waited_for: usize,
    /// Background runs; further ones wait in the queue.
    pub background: usize,
}

/// A request to run an agent.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The project of the agent.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: String,
    /// The inputs.
    pub inputs: Inputs,
    /// Replaces the definition's time limit.
    pub timeout: Option<Duration>,
    /// The user's time zone, if the caller named it, to interpret words like "tomorrow" (DESIGN.md section 11).
    pub time_zone: Option<Tz>,
    /// True if the caller does not wait for the run.
    pub background: bool,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

/// The settings of a resume.
#[derive(Clone, Debug)]
pub struct Resume {
    /// For each in-doubt call: did it have its effect?
    pub settled: BTreeMap<ActionId, bool>,
    /// Replaces the definition's time limit.
    pub timeout: Option<Duration>,
    /// True if the caller does not wait for the run.
    pub background: bool,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

/// A run that exists.
#[derive(Debug)]
pub struct Triggered {
    /// Its id.
    pub run: RunId,
    /// Did the same request create it before?
    pub replayed: bool,
    /// The caller's quota after this request.
    pub quota: Option<QuotaState>,
    /// Does it wait until other runs of its thread have ended?
    pub waits_its_turn: bool,
    /// Ends when this process has executed the run as far as it can.
    driven: Option<tokio::task::JoinHandle<()>>,
}

impl AgentRuns {
    /// Builds the surface.
    #[must_use]
    pub fn new(
        agents: Arc<Agents>,
        directory: Directory,
        quota: Arc<dyn Quota>,
        at_once: AtOnce,
        on_reject: OnReject,
        while_busy: WhileBusy,
    ) -> Arc<Self> {
        Arc::new(Self {
            agents,
            directory,
            quota,
            on_reject,
            while_busy,
            queue: OnceLock::new(),
            leases: work::Leases::default(),
            unrecorded: Arc::default(),
            admission: Budget::new(
                "runs that a caller waits for",
                Limits::with_reserve(at_once.waited_for as u64),
            ),
            background: work::Background::new(at_once.background),
            looks: Arc::new(Semaphore::new(LOOKS)),
            working: TaskTracker::new(),
            halt: CancellationToken::new(),
            halt_waited_for: CancellationToken::new(),
            cut: CancellationToken::new(),
            ended: CancellationToken::new(),
        })
    }

    /// Sets the queue that wakes workers. The queue needs the worker, which needs the surface. Without a queue, the
    /// sweep finds queued runs.
    pub fn set_queue(&self, queue: Arc<dyn RunQueue>) {
        if self.queue.set(queue).is_err() {
            tracing::error!("the queue of runs was set twice; the first one stays");
        }
    }

    /// The known agents.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Wall clock, microseconds since the epoch.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.agents.engine.clock.now_us()
    }

    /// Creates and starts a run.
    ///
    /// # Errors
    /// [`AgentError`]; later errors are reported by the run itself.
    pub async fn trigger(
        self: &Arc<Self>,
        caller: &Caller,
        user: UserId,
        trigger: Trigger,
    ) -> Result<Triggered, AgentError> {
        self.trigger_in(caller, user, trigger, None).await
    }

    /// Like [`AgentRuns::trigger`], for a run of a thread.
    pub(super) async fn trigger_in(
        self: &Arc<Self>,
        caller: &Caller,
        user: UserId,
        trigger: Trigger,
        thread: Option<InThread>,
    ) -> Result<Triggered, AgentError> {
        if let Some(before) = self.made_before(&trigger.meta).await? {
            return Ok(before);
        }
        let shed = trigger.meta.shed;
        let project = self.directory.project(&caller.tenant, &trigger.project).await?;
        let agent = match (project.agents.get(&trigger.agent), project.broken.get(&trigger.agent)) {
            _ if let Some(place) = &thread => match answerer(&project.agents, &trigger.agent) {
                Ok(agent) => agent,
                Err(why) => {
                    let (words, detail) = (&place.message, Arc::from(why.as_str()));
                    self.without_run(caller, user, words, &trigger.meta, Outcome::Internal, Some(detail))
                        .await?;
                    return Err(AgentError::NoAnswerer(why));
                }
            },
            (Some(agent), _) => agent,
            (None, Some(broken)) => return Err(AgentError::InvalidDefinition(broken.errors.clone())),
            (None, None) => return Err(AgentError::NotFound),
        };
        let definition = &agent.definition;
        let inputs = trigger.inputs.named(definition)?;
        let inputs = definition.check_arguments(inputs).map_err(|errors| {
            let pointer = |name: &str| {
                if name.is_empty() {
                    String::new()
                } else {
                    format!("/{name}")
                }
            };
            let places = errors.into_iter().map(|error| FieldError {
                pointer: pointer(&error.name),
                detail: error.detail,
            });
            AgentError::Invalid(places.collect())
        })?;
        let bundle = DefinitionSnapshot::of(&trigger.agent, &project.agents).ok_or(AgentError::NotFound)?;
        let mut settings = Settings::top(definition, trigger.timeout, trigger.meta.traceparent.clone());
        settings.zone = trigger.time_zone;
        if thread.is_some() {
            settings = settings.in_thread(self.on_reject);
        }
        let id = RunId::new();
        let input: Arc<RawValue> = Arc::from(canonical::to_raw(&Value::Object(inputs)));
        let new = NewRun {
            id,
            project: trigger.project,
            agent: Arc::from(trigger.agent.as_str()),
            version: project.versions.get(&trigger.agent).copied(),
            decision: OpenDecision {
                id: id.decision(),
                tenant: caller.tenant.clone(),
                surface: thread.as_ref().map_or(SURFACE, |_| THREAD_SURFACE),
                user,
                conversation: thread
                    .as_ref()
                    .map_or_else(|| conversation(id), |place| conversation(place.thread)),
                message: Arc::from(input.get()),
                definition_hash: Arc::clone(&definition.hash),
                request_id: Arc::clone(&trigger.meta.request_id),
                created_at: self.now_us(),
            },
            origin: thread.map_or(Origin::Trigger, Origin::Thread),
            resumes: None,
            settled: None,
            snapshot: bundle.snapshot(),
            input,
            settings: settings.to_raw(),
            queued: trigger.background,
            claim: trigger.meta.idempotency,
        };
        self.set_going(new, shed).await
    }

    /// Resumes a paused run, as a new run with a fresh budget.
    ///
    /// # Errors
    /// [`AgentError`]: the run does not exist, is not paused, was already resumed, has no steps left, or has unsettled
    /// in-doubt calls.
    pub async fn resume(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<UserId>,
        run: RunId,
        resume: Resume,
    ) -> Result<Triggered, AgentError> {
        if let Some(before) = self.made_before(&resume.meta).await? {
            return Ok(before);
        }
        let shed = resume.meta.shed;
        let paused = self.stored(caller, user.as_ref(), run).await?;
        if let Origin::Called((parent, _)) = paused.origin {
            return Err(AgentError::PartOf(self.outermost(parent).await?));
        }
        if let Some(by) = paused.resumed_by {
            return Err(AgentError::ResumedBy(by));
        }
        if paused.status != RunStatus::Paused {
            return Err(AgentError::NotPaused(paused.status));
        }
        check_settled(&paused, &resume.settled)?;
        let bundle = DefinitionSnapshot::read(&paused.snapshot).map_err(|error| {
            tracing::error!(run_id = %run, %error, "the definition of a run cannot be read");
            AgentError::RecordUnavailable
        })?;
        let definition = &bundle.get(&paused.agent).ok_or(AgentError::NotFound)?.definition;
        let mut settings = Settings::top(definition, resume.timeout, resume.meta.traceparent.clone());
        settings.zone = Settings::read(&paused.settings).zone;
        if let Some(most) = definition.limits.max_turns {
            let left = MOST_STEPS.saturating_sub(self.steps_so_far(&paused).await?);
            if left == 0 {
                return Err(AgentError::StepLimitExceeded);
            }
            settings.steps = Some(most.min(left));
        }
        let settled = Some(Settled {
            by: caller.name_for(user.as_ref()).into(),
            calls: resume.settled.clone(),
        });
        settings.settled = resume.settled;
        let id = RunId::new();
        let new = NewRun {
            id,
            project: paused.project.clone(),
            agent: Arc::clone(&paused.agent),
            version: paused.version,
            decision: OpenDecision {
                id: id.decision(),
                surface: SURFACE,
                conversation: paused.decision.conversation.clone(),
                message: Arc::from(paused.input.get()),
                request_id: Arc::clone(&resume.meta.request_id),
                created_at: self.now_us(),
                ..paused.decision.clone()
            },
            origin: Origin::Trigger,
            resumes: Some(run),
            settled,
            snapshot: paused.snapshot.clone(),
            input: Arc::clone(&paused.input),
            settings: settings.to_raw(),
            queued: resume.background,
            claim: resume.meta.idempotency,
        };
        self.set_going(new, shed).await
    }

    /// The run that the same request created before. It uses no quota, and is found even if the request could create no
    /// run now. If two such requests arrive at once, one creates the run: writing the row decides which one.
    async fn made_before(&self, meta: &RequestMeta) -> Result<Option<Triggered>, AgentError> {
        let Some(key) = &meta.idempotency else {
            return Ok(None);
        };
        match self.agents.runs.claimed(key).await? {
            None | Some(Claimed::New) => Ok(None),
            Some(Claimed::Run(run)) => Ok(Some(Triggered {
                run,
                replayed: true,
                quota: None,
                waits_its_turn: false,
                driven: None,
            })),
            // The scope names the route, so no chat request has claimed it.
            Some(Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => Err(AgentError::KeyReused),
        }
    }

    /// Claims the idempotency key of a request about a run that is harmless to repeat.
    pub(super) async fn claim(&self, key: Option<&Claim>, run: RunId, what: OutcomeUnknown) -> Result<(), AgentError> {
        let Some(key) = key else { return Ok(()) };
        let recorder = &self.agents.engine.recorder;
        match recorder.claim(key.clone(), Claimant::Run(run)).await {
            Ok(Claimed::New) => Ok(()),
            Ok(Claimed::Run(_) | Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => {
                Err(AgentError::KeyReused)
            }
            Err(error) => Err(outcome_unknown(&error, what)),
        }
    }

    /// Like [`AgentRuns::made`], in a separate task. A client that disconnects meanwhile leaves neither a run without a
    /// worker nor a request without a decision.
    async fn set_going(self: &Arc<Self>, new: NewRun, shed: Option<Exceeded>) -> Result<Triggered, AgentError> {
        let (run, asked) = (new.id, new.clone());
        let made = self.working.spawn(Arc::clone(self).made(new, shed).in_current_span());
        match made.await {
            Ok(made) => made,
            Err(error) => {
                tracing::error!(run_id = %run, %error, "creating a run panicked");
                // If the run exists already, its decision is its own and remains unchanged.
                if let Err(error) = self
                    .unmade(asked, DecisionType::RespondOnly, Outcome::Internal, None)
                    .await
                {
                    tracing::debug!(run_id = %run, ?error, "no decision was added to the run's own");
                }
                Err(AgentError::OutcomeUnknown(OutcomeUnknown::Run(run)))
            }
        }
    }

    /// Checks quota and admission and writes the row. Then executes the run, here or on the process that takes the
    /// queue's job.
    async fn made(self: Arc<Self>, new: NewRun, shed: Option<Exceeded>) -> Result<Triggered, AgentError> {
        let (id, queued) = (new.id, new.queued);
        let quota = self.quota.take(&new.decision.tenant, &new.decision.user).await;
        if !quota.allowed {
            self.refused(new, Outcome::RateLimited, None).await?;
            return Err(AgentError::RateLimited(quota));
        }
        if self.working.is_closed() || self.halt.is_cancelled() || shed.is_some() {
            self.refused(new, Outcome::Overloaded, shed).await?;
            return Err(AgentError::Overloaded);
        }
        let place = match queued {
            true => None,
            false => match self
                .admission
                .take(new.decision.tenant.as_str(), new.decision.user.as_str(), 1)
            {
                Ok(place) => Some(place),
                Err(exceeded) => {
                    self.refused(new, Outcome::Overloaded, Some(exceeded)).await?;
                    return Err(AgentError::Overloaded);
                }
            },
        };
        let asked = self.now();
        let refused = new.origin.thread().is_some().then(|| new.decision.clone());
        let made = self.agents.runs.create(new).await;
        let made = made.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Run(id)))?;
        let mut triggered = Triggered {
            run: id,
            replayed: false,
            quota: Some(quota),
            waits_its_turn: false,
            driven: None,
        };
        match made {
            Created::New(Some(lease)) => {
                let (this, halt) = (Arc::clone(&self), self.halt_waited_for.clone());
                triggered.driven = Some(self.working.spawn(async move {
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
                triggered.waits_its_turn = !queued;
                let this = Arc::clone(&self);
                self.working.spawn(async move { this.push(id).await });
            }
            Created::Replayed(run) => {
                triggered.run = run;
                triggered.replayed = true;
            }
            Created::Mismatch => return Err(AgentError::KeyReused),
            // The run was deleted by the retention since it was read.
            Created::NothingToResume => return Err(AgentError::NotFound),
            Created::NotPaused(status) => return Err(AgentError::NotPaused(status)),
            Created::ResumedBy(by) => return Err(AgentError::ResumedBy(by)),
            Created::ThreadBusy(run) => {
                if let Some(decision) = refused {
                    let detail = format!("run {run} of the thread is active");
                    let detail = Some(Arc::from(detail));
                    self.undecided(decision, DecisionType::Refuse, Outcome::Overloaded, detail)
                        .await?;
                }
                return Err(AgentError::ThreadBusy(run));
            }
            Created::NoThread => return Err(AgentError::NotFound),
            // A run without a parent has no lease to lose.
            Created::LeaseLost => return Err(AgentError::RecordUnavailable),
        }
        Ok(triggered)
    }

    /// An unavailable queue only delays the run: the sweep finds it.
    async fn push(&self, run: RunId) {
        if let Some(queue) = self.queue.get()
            && let Err(error) = queue.push(run).await
        {
            tracing::warn!(run_id = %run, %error, "a run could not be queued; the sweep will find it");
        }
    }

    /// Records a message for a thread for which no run is created. The decision has this message and no more. It names
    /// no thread, since it was not checked whether the thread belongs to the user.
    ///
    /// # Errors
    /// The user's quota is exceeded; nothing can be recorded.
    pub(super) async fn without_run(
        &self,
        caller: &Caller,
        user: UserId,
        words: &str,
        meta: &RequestMeta,
        outcome: Outcome,
        detail: Option<Arc<str>>,
    ) -> Result<(), AgentError> {
        let quota = self.quota.take(&caller.tenant, &user).await;
        let id = RunId::new();
        let open = OpenDecision {
            id: id.decision(),
            tenant: caller.tenant.clone(),
            surface: THREAD_SURFACE,
            user,
            conversation: conversation(id),
            message: Arc::from(words),
            definition_hash: Arc::from(""),
            request_id: Arc::clone(&meta.request_id),
            created_at: self.now_us(),
        };
        if !quota.allowed {
            self.undecided(open, DecisionType::Refuse, Outcome::RateLimited, None)
                .await?;
            return Err(AgentError::RateLimited(quota));
        }
        self.undecided(open, DecisionType::RespondOnly, outcome, detail).await
    }

    /// Every request is recorded as a decision, even if it created no run (promise 1).
    async fn refused(&self, new: NewRun, outcome: Outcome, why: Option<Exceeded>) -> Result<(), AgentError> {
        self.unmade(new, DecisionType::Refuse, outcome, why).await
    }

    async fn unmade(
        &self,
        new: NewRun,
        decision_type: DecisionType,
        outcome: Outcome,
        why: Option<Exceeded>,
    ) -> Result<(), AgentError> {
        // Whether a thread belongs to the user is checked only when the run is created.
        let conversation = conversation(new.id);
        let open = OpenDecision {
            conversation,
            ..new.decision
        };
        let why = why.map(|exceeded| exceeded.to_string().into());
        self.undecided(open, decision_type, outcome, why).await
    }

    async fn undecided(
        &self,
        open: OpenDecision,
        decision_type: DecisionType,
        outcome: Outcome,
        error_detail: Option<Arc<str>>,
    ) -> Result<(), AgentError> {
        let refused = ClosedDecision {
            open,
            decision_type,
            outcome,
            intent: Arc::from("none"),
            response: Arc::from(""),
            model: Arc::from(self.agents.engine.model.default_model()),
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
        closed.map(drop).map_err(|error| unrecorded(&error))
    }

    /// Waits until a run has ended or waits for an approval, on any process.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn wait(&self, caller: &Caller, triggered: &mut Triggered) -> Result<AgentRun, AgentError> {
        if let Some(driven) = triggered.driven.take()
            && let Err(error) = driven.await
        {
            tracing::error!(run_id = %triggered.run, %error, "the execution of a run stopped before the run ended");
        }
        self.until(caller, triggered.run, |status| {
            status.is_over() || status == RunStatus::AwaitingConfirmation
        })
        .await
    }

    /// Waits until a run has a certain status, on any process. Gives up on a run that repeatedly cannot be recorded.
    async fn until(
        &self,
        caller: &Caller,
        run: RunId,
        enough: impl Fn(RunStatus) -> bool,
    ) -> Result<AgentRun, AgentError> {
        let mut patience = watch::LOOK;
        loop {
            // Subscribes before the read, so that no start is missed.
            let begins = self.agents.running.begins(run);
            let mut watch = self.agents.running.live(run).map(|live| live.watch().1);
            let found = {
                let _look = self.looks.acquire().await;
                self.agents.runs.get(&caller.tenant, None, run).await?
            };
            let found = found.ok_or(AgentError::NotFound)?;
            // A run that stops with the service continues on another process, so waiting here is pointless.
            if enough(found.status) || self.cut.is_cancelled() {
                return Ok(found);
            }
            if self.unrecorded.is_hopeless(run) {
                return Err(AgentError::Begun(run));
            }
            tokio::select! {
                () = watch::pause(&mut watch, begins, &mut patience) => {}
                () = self.cut.cancelled() => {}
            }
        }
    }

    /// The error for an existing run that `error` prevented from being read. It reports possible unrecorded effects
    /// only for runs that this process could not record.
    #[must_use]
    pub fn unreadable(&self, run: RunId, error: &AgentError) -> AgentError {
        tracing::error!(run_id = %run, %error, "the state of a run cannot be read");
        match error {
            AgentError::Begun(_) => AgentError::Begun(run),
            _ if self.unrecorded.has(run) => AgentError::Begun(run),
            _ => AgentError::Unreadable(run),
        }
    }

    /// A run that is visible to the caller.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn get(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<AgentRun, AgentError> {
        let user = visible_to(caller, user);
        let found = self.agents.runs.get(&caller.tenant, user, run).await?;
        found.ok_or(AgentError::NotFound)
    }

    /// A run of the tenant, of any user, for an approver who may resolve its approvals.
    pub(super) async fn of_tenant(&self, caller: &Caller, run: RunId) -> Result<AgentRun, AgentError> {
        let found = self.agents.runs.get(&caller.tenant, None, run).await?;
        found.ok_or(AgentError::NotFound)
    }

    /// A page of the runs of a project.
    ///
    /// # Errors
    /// The query is invalid; there is no such project; the store is unavailable.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        project: &ProjectId,
        query: ListQuery,
    ) -> Result<RunPage, AgentError> {
        self.directory.project(&caller.tenant, project).await?;
        let query = ListQuery {
            user: visible_to(caller, user).cloned(),
            ..query
        };
        Ok(self.agents.runs.list(&caller.tenant, project, &query).await?)
    }

    /// Waits until a run has ended or waits for an approval again, after an approval was resolved.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn rests(&self, caller: &Caller, run: RunId) -> Result<AgentRun, AgentError> {
        let mut triggered = Triggered {
            run,
            replayed: true,
            quota: None,
            waits_its_turn: false,
            driven: None,
        };
        self.wait(caller, &mut triggered).await
    }

    /// Waits a moment for a cancelled run to end. The run ends by itself, even if it takes longer.
    pub(super) async fn ends(&self, caller: &Caller, run: RunId) {
        let over = self.until(caller, run, RunStatus::is_over);
        match tokio::time::timeout(TO_END, over).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(run_id = %run, %error, "waiting for a cancelled run failed"),
            Err(_) => tracing::debug!(run_id = %run, "a cancelled run has not ended yet"),
        }
    }

    /// Claims a run whose approval was resolved, or that was cancelled, unless another process has it. It counts
    /// against the limit of waited-for runs. If the limit is reached, the sweep finds the run a moment later.
    pub(super) fn claim_resolved(self: &Arc<Self>, run: RunId, tenant: &TenantId, user: &str) {
        // Earlier failures, possibly on another process, do not matter: this caller waits for new results.
        self.unrecorded.continued(run);
        if self.working.is_closed() {
            return;
        }
        let place = match self.admission.take(tenant.as_str(), user, 1) {
            Ok(place) => place,
            Err(exceeded) => {
                tracing::debug!(run_id = %run, %exceeded, "this run continues a little later");
                return;
            }
        };
        let this = Arc::clone(self);
        self.working.spawn(async move {
            this.take_up(run).await;
            drop(place);
        });
    }

    /// The thread of a run, and its calls according to its journal.
    pub(super) async fn calls(&self, run: RunId) -> Result<(Option<ThreadId>, Vec<CallState>), AgentError> {
        let standing = self.agents.runs.standing(run).await?.ok_or(AgentError::NotFound)?;
        let mut calls = Calls::default();
        let mut after = 0;
        loop {
            let page = watch::entries(&self.agents, run, after).await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, entry) in &page {
                calls.take(entry);
            }
        }
        Ok((standing.origin.thread().copied(), calls.into_states()))
    }

    /// Cancels a run and its child runs, on any process. A run that has ended is unchanged.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn cancel(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        key: Option<&Claim>,
    ) -> Result<AgentRun, AgentError> {
        let found = self.get(caller, user, run).await?;
        self.claim(key, run, OutcomeUnknown::Cancel(run)).await?;
        if found.status.is_over() {
            return Ok(found);
        }
        let asked = self.agents.runs.cancel(run, &caller.name_for(user)).await;
        asked.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Cancel(run)))?;
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

    /// Streams the events of a run, starting after `cursor`, until it has ended.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn watch(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        cursor: Cursor,
    ) -> Result<Watch, AgentError> {
        self.get(caller, user, run).await?;
        let (stop, looks) = (self.cut.clone(), Arc::clone(&self.looks));
        let (agents, unrecorded) = (Arc::clone(&self.agents), Arc::clone(&self.unrecorded));
        let tenant = caller.tenant.clone();
        Ok(Watch::new(agents, unrecorded, tenant, run, cursor, stop, looks))
    }

    /// The stored run, if the caller may see it.
    async fn stored(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<StoredRun, AgentError> {
        self.get(caller, user, run).await?;
        self.agents.runs.load(run).await?.ok_or(AgentError::NotFound)
    }

    /// The outermost run above this one.
    async fn outermost(&self, mut run: RunId) -> Result<RunId, AgentError> {
        while let Some(standing) = self.agents.runs.standing(run).await? {
            match standing.origin {
                Origin::Called((parent, _)) => run = parent,
                Origin::Trigger | Origin::Thread(_) => break,
            }
        }
        Ok(run)
    }

    /// The steps of a run and of the runs that it resumed.
    async fn steps_so_far(&self, run: &StoredRun) -> Result<u32, AgentError> {
        let (mut steps, mut at) = (run.steps, run.resumes);
        while let Some(id) = at {
            let Some(earlier) = self.agents.runs.standing(id).await? else {
                break;
            };
            steps = steps.saturating_add(earlier.steps);
            at = earlier.resumes;
        }
        Ok(steps)
    }
}

/// Every in-doubt call must be settled, and no other call.
fn check_settled(paused: &StoredRun, settled: &BTreeMap<ActionId, bool>) -> Result<(), AgentError> {
    let known = |id: &ActionId| paused.in_doubt.iter().any(|call| call.action_id == *id);
    let unknown: Vec<_> = settled
        .keys()
        .filter(|id| !known(id))
        .map(|id| FieldError {
            pointer: format!("/settled/{id}"),
            detail: "is not an in-doubt call of this run".to_owned(),
        })
        .collect();
    if !unknown.is_empty() {
        return Err(AgentError::Invalid(unknown));
    }
    let open: Vec<_> = paused
        .in_doubt
        .iter()
        .filter(|call| !settled.contains_key(&call.action_id))
        .cloned()
        .collect();
    if open.is_empty() {
        Ok(())
    } else {
        Err(AgentError::InDoubt(open))
    }
}

/// A user sees their own runs; a service sees those of the user it names, or all of its tenant's.
fn visible_to<'a>(caller: &'a Caller, user: Option<&'a UserId>) -> Option<&'a UserId> {
    match &caller.identity {
        Identity::User(own) => Some(own),
        Identity::Service(_) => user,
    }
}

fn conversation(run: impl std::fmt::Display) -> ConversationId {
    ConversationId::parse(run.to_string()).unwrap_or_else(|_| unreachable!("a UUID is a valid id"))
}

pub(super) fn unrecorded(error: &RecordError) -> AgentError {
    tracing::error!(%error, "a request was rejected, since nothing can be recorded");
    AgentError::RecordUnavailable
}

/// The error for a write that failed, or whose outcome is unknown.
pub(super) fn outcome_unknown(error: &RecordError, what: OutcomeUnknown) -> AgentError {
    match error {
        RecordError::Unavailable(_) => unrecorded(error),
        RecordError::Uncertain(_) => {
            tracing::error!(%error, "a request ended, and its outcome is unknown: {what}");
            AgentError::OutcomeUnknown(what)
        }
    }
}
