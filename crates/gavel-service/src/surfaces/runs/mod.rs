//! The life of a run, for every surface: it is begun, waited for, watched, cancelled and resumed, and worked on.
//!
//! A run that a caller waits for is executed at once by the process that received the request. A background run is
//! queued, and executed by the process that claims it. Either way, the run's row is authoritative, and the run is
//! leased to the process that executes it. If that process dies, another one continues the run.

mod begin;
mod read;
mod resume;
mod start;
mod wait;
mod watch;
mod work;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::begin::Begin;
pub use self::resume::Resume;
pub use self::start::Begun;
pub(crate) use self::watch::{LogItem, Logged};
pub use self::watch::{PlacedEvent, Watch};
use super::caller::Caller;
use super::request::Claim;
use super::{OutcomeUnknown, StoreFailure};
pub use crate::api::events::{Event, RunEvent};
use crate::api::problem::FieldError;
use crate::api::runs::{AgentRun, InDoubtCall};
use crate::domain::agent_run::RunStatus;
use crate::domain::budget::{Budget, Exceeded, Pool};
use crate::domain::ids::{ConversationId, RunId, UserId};
use crate::domain::planning_session::SessionStatus;
use crate::engine::agent::Agents;
use crate::ports::quota::{Quota, QuotaState};
use crate::ports::records::QueryError;
pub use crate::ports::runs::{InThread, Origin};

/// Maximum concurrent store reads for waiting callers: the other read connections are for requests.
const LOOKS: usize = 2;

/// All runs that this process begins, executes, or is asked about.
pub struct Runs {
    agents: Arc<Agents>,
    quota: Arc<dyn Quota>,
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
    /// Background runs; further ones wait.
    pub background: usize,
}

impl Runs {
    /// Over the engine's agents.
    #[must_use]
    pub fn new(agents: Arc<Agents>, quota: Arc<dyn Quota>, at_once: AtOnce) -> Arc<Self> {
        Arc::new(Self {
            agents,
            quota,
            leases: work::Leases::default(),
            unrecorded: Arc::default(),
            admission: Budget::new(Pool::WaitedFor, Pool::WaitedFor.limits(at_once.waited_for as u64)),
            background: work::Background::new(at_once.background),
            looks: Arc::new(Semaphore::new(LOOKS)),
            working: TaskTracker::new(),
            halt: CancellationToken::new(),
            halt_waited_for: CancellationToken::new(),
            cut: CancellationToken::new(),
            ended: CancellationToken::new(),
        })
    }

    /// Wall clock, microseconds since the epoch.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.agents.engine.clock.now_us()
    }

    /// The instant before the store is asked for a lease.
    fn now(&self) -> Instant {
        self.agents.engine.clock.instant()
    }

    /// Stops background runs between two steps, so that another process can claim them.
    pub fn stop_background(&self) {
        self.halt.cancel();
    }

    /// How many runs are being executed or created.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.working.len()
    }

    /// Waits until all work has ended.
    pub async fn drained(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// Stops the runs that callers wait for between two steps as well.
    pub fn stop_waited_for(&self) {
        self.halt_waited_for.cancel();
    }

    /// Interrupts every run at once, even during calls.
    pub fn cut_short(&self) {
        self.cut.cancel();
    }

    /// Stops the renewal of leases.
    pub fn end(&self) {
        self.ended.cancel();
    }
}

fn conversation(of: impl std::fmt::Display) -> ConversationId {
    ConversationId::parse(of.to_string()).unwrap_or_else(|_| unreachable!("a UUID is a valid id"))
}

// Errors of runs (R-16: the classes of errors; the HTTP layer assigns each a code).

/// Why a request about a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// There is no such run; or the store failed.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// The request is invalid; all errors at once.
    #[error("the request is not valid")]
    Invalid(Vec<FieldError>),
    /// The quota is exceeded.
    #[error("the quota is exceeded")]
    RateLimited(QuotaState),
    /// Too many requests in progress, or the service is stopping.
    #[error("the service is overloaded")]
    Overloaded,
    /// This run of the same thread is active.
    #[error("run {0} of the thread is active")]
    ThreadBusy(RunId),
    /// The planning session does not wait for confirmation with the given version of its plan; its status and version.
    #[error("the session is {status} with version {version} of its plan", status = .0.as_str(), version = .1)]
    SessionMoved(SessionStatus, u32),
    /// There are as many planning sessions as this limit allows.
    #[error("there are too many planning sessions")]
    TooManySessions(Exceeded),
    /// Only a run that is paused, or whose processes were lost, can be resumed; this run's status.
    #[error("the run is {}", .0.as_str())]
    NotPaused(RunStatus),
    /// The run was called by another one, and is resumed with its outermost run: this one.
    #[error("the run belongs to {0}")]
    PartOf(RunId),
    /// The step limit over all resumes is exhausted.
    #[error("no steps are left")]
    StepLimitExceeded,
    /// The deadline of the run has passed: this time, in microseconds since the epoch.
    #[error("the deadline of the run has passed")]
    DeadlinePassed(i64),
    /// These in-doubt calls are not settled.
    #[error("calls are in doubt")]
    InDoubt(Vec<InDoubtCall>),
    /// The run may have had effects, and its outcome could not be recorded.
    #[error("run {0} may have had effects, and its outcome is not recorded")]
    Unrecorded(RunId),
    /// The run exists, and its effects are recorded as far as this process knows, but its state cannot be read now.
    #[error("the state of run {0} cannot be read now")]
    Unreadable(RunId),
}

impl From<QueryError> for RunError {
    fn from(error: QueryError) -> Self {
        Self::Store(error.into())
    }
}

// Cancels runs.

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
