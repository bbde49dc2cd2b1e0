//! The life of a run, for every surface: it is begun, waited for, watched, cancelled and resumed, and worked on.
//!
//! A run that a caller waits for is executed at once by the process that received the request. A background run is
//! queued, and executed by the process that claims it. Either way, the run's row is authoritative, and the run is
//! leased to the process that executes it. If that process dies, another one continues the run.

mod begin;
mod watch;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use watch::parsed;

pub use self::begin::Begin;
pub use self::begin::Begun;
pub use self::begin::Resume;
pub(crate) use self::watch::{Looks, Sink};
pub use self::watch::{PlacedEvent, Watch};
use super::caller::Caller;
use super::request::Claim;
use crate::api::problem::Code;
use crate::api::runs::AgentRun;
use crate::domain::action::Action;
use crate::domain::agent_run::RunStatus;
use crate::domain::budget::{Budget, Pool};
use crate::domain::ids::{ProjectId, RunId, ThreadId, UserId};
use crate::domain::policy::Policy;
use crate::engine::agent::{Agents, Settings};
use crate::engine::journal::Journal;
use crate::engine::live::Said;
use crate::ports::quota::Quota;
use crate::ports::runs::StoredRun;
pub use crate::ports::runs::{InThread, Origin};
use crate::surfaces::decisions::{ListQuery, Page};
pub use crate::surfaces::problem::Problem;

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
    /// The store reads for waiting callers.
    looks: Looks,
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
    pub fn new(agents: Arc<Agents>, quota: Arc<dyn Quota>, at_once: AtOnce) -> Arc<Self> {
        Arc::new(Self {
            agents,
            quota,
            leases: work::Leases::default(),
            unrecorded: Arc::default(),
            admission: Budget::new(Pool::WaitedFor, Pool::WaitedFor.limits(at_once.waited_for as u64)),
            background: work::Background::new(at_once.background),
            looks: Looks::default(),
            working: TaskTracker::new(),
            halt: CancellationToken::new(),
            halt_waited_for: CancellationToken::new(),
            cut: CancellationToken::new(),
            ended: CancellationToken::new(),
        })
    }

    /// Wall clock, microseconds since the epoch.
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
    ) -> Result<AgentRun, Problem> {
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

/// The run may have had effects, and its outcome could not be recorded.
fn unrecorded(run: RunId) -> Problem {
    Problem::unrecorded(run.decision()).about(run)
}

fn cancellation(run: RunId) -> Problem {
    let detail = format!(
        "It is unknown whether run {run} will be cancelled. Check its status; cancelling it again does no harm."
    );
    Problem::outcome_unknown(Some(run), detail)
}

/// The most entries that are read at once.
const PAGE: u32 = 32;

impl Runs {
    /// A run that is visible to the caller.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn get(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<AgentRun, Problem> {
        let user = caller.sees(user);
        let found = self.agents.runs.get(&caller.tenant, user, run).await?;
        found.ok_or(Problem::from_code(Code::NotFound))
    }

    /// A run of the tenant, of any user, for an approver who may resolve its approvals.
    pub(crate) async fn of_tenant(&self, caller: &Caller, run: RunId) -> Result<AgentRun, Problem> {
        let found = self.agents.runs.get(&caller.tenant, None, run).await?;
        found.ok_or(Problem::from_code(Code::NotFound))
    }

    /// A page of the runs of a project.
    ///
    /// # Errors
    /// The query is invalid; the store is unavailable.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        project: &ProjectId,
        query: ListQuery,
    ) -> Result<Page<AgentRun>, Problem> {
        let query = ListQuery {
            user: caller.sees(user).cloned(),
            ..query
        };
        Ok(self.agents.runs.list(&caller.tenant, project, &query).await?)
    }

    /// The thread of a run, and its journal.
    pub(crate) async fn in_thread(&self, run: RunId) -> Result<(Option<ThreadId>, Journal), Problem> {
        let state = self.agents.runs.run_state(run).await?.ok_or(Code::NotFound)?;
        Ok((state.origin.thread().copied(), self.journal(run).await?.0))
    }

    /// The settings of a run.
    pub(crate) async fn settings_of(&self, run: RunId) -> Result<Settings, Problem> {
        let stored = self.agents.runs.load(run).await?.ok_or(Code::NotFound)?;
        read_settings(&stored)
    }

    /// The journal of a run, and when each entry was written, in microseconds since the epoch.
    pub(crate) async fn journal(&self, run: RunId) -> Result<(Journal, Vec<i64>), Problem> {
        let (mut journal, mut times, mut after) = (Journal::default(), Vec::new(), 0);
        loop {
            let page = self.agents.runs.journal(run, after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok((journal, times));
            };
            after = last.number;
            for stored in &page {
                journal.push(parsed(run, stored)?);
                times.push(stored.at_us);
            }
        }
    }

    /// The actions of a run and of the runs that it called, in order, without what they returned.
    pub(crate) async fn actions_of(&self, run: RunId) -> Result<Vec<Action>, Problem> {
        Ok(self.agents.actions.of_run(run).await?)
    }

    /// The operator's policy.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.agents.engine.policy
    }

    /// The stored run, if the caller may see it.
    async fn stored(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<StoredRun, Problem> {
        self.get(caller, user, run).await?;
        self.agents
            .runs
            .load(run)
            .await?
            .ok_or(Problem::from_code(Code::NotFound))
    }
}

/// The settings of a run, which restrict what it may do.
fn read_settings(stored: &StoredRun) -> Result<Settings, Problem> {
    Settings::read(&stored.settings).map_err(|error| {
        tracing::error!(run_id = %stored.id, %error, "a run cannot be used");
        Code::RecordUnavailable.into()
    })
}

/// How long to wait for a cancelled run to end.
const TO_END: Duration = Duration::from_secs(2);

impl Runs {
    /// Waits until a run has ended or waits for an approval.
    ///
    /// # Errors
    /// The store is unavailable; the run cannot be recorded.
    pub async fn wait(&self, caller: &Caller, begun: &mut Begun) -> Result<AgentRun, Problem> {
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
    pub async fn rests(&self, caller: &Caller, run: RunId) -> Result<AgentRun, Problem> {
        let rests = |status: RunStatus| status.has_ended() || status == RunStatus::AwaitingConfirmation;
        self.until(caller, run, rests).await
    }

    /// Waits until a run has ended, also while it waits for an approval; or until the service stops.
    pub(crate) async fn ended(&self, caller: &Caller, run: RunId) -> Result<AgentRun, Problem> {
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
    ) -> Result<AgentRun, Problem> {
        let mut patience = watch::LOOK;
        loop {
            // Subscribes before the read, so that no start is missed.
            let begins = self.agents.running.begins(run);
            let mut watch = self.agents.running.live(run).map(|live| live.watch().1);
            let found = {
                let _look = self.looks.0.acquire().await;
                self.agents.runs.get(&caller.tenant, None, run).await?
            };
            let found = found.ok_or(Code::NotFound)?;
            // A run that stops with the service continues on another process, so waiting here is pointless.
            if enough(found.status) || self.cut.is_cancelled() {
                return Ok(found);
            }
            if self.unrecorded.is_hopeless(run) {
                return Err(unrecorded(run));
            }
            tokio::select! {
                () = watch::pause(&mut watch, begins, &mut patience) => {}
                () = self.cut.cancelled() => {}
            }
        }
    }

    /// Waits a moment before a reader looks again whether something follows this run: no process announces that. The
    /// time grows with each call, as for readers of a run; it begins with zero.
    pub(crate) async fn before_next_look(&self, run: RunId, patience: &mut Duration) {
        *patience = (*patience).max(watch::LOOK);
        watch::pause(&mut None, self.agents.running.begins(run), patience).await;
    }

    /// The store reads for waiting callers, shared with the readers of runs.
    pub(crate) const fn looks(&self) -> &Looks {
        &self.looks
    }

    /// Fires when the service stops: readers continue at another process.
    pub(crate) const fn stopping(&self) -> &CancellationToken {
        &self.cut
    }

    /// The error for an existing run that `error` prevented from being read. It reports possible unrecorded effects
    /// only for runs that this process could not record.
    pub fn unreadable(&self, run: RunId, error: Problem) -> Problem {
        tracing::error!(run_id = %run, %error, "the state of a run cannot be read");
        if error.code == Code::OutcomeUnrecorded || self.unrecorded.has(run) {
            return unrecorded(run);
        }
        let detail = format!(
            "Run {run} exists, but its state cannot be read now. Check it in a moment; do not send the request again without \
             its Idempotency-Key."
        );
        Problem::new(Code::RunUnreadable, detail).about(run)
    }

    /// Streams the events of a run, after this number, until it has ended.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn watch(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        after: u64,
    ) -> Result<Watch, Problem> {
        self.get(caller, user, run).await?;
        let (runs, tenant) = (Arc::clone(self), caller.tenant.clone());
        Ok(Watch::new(self.cut.clone(), move |sink| {
            let reader = watch::Reader {
                runs,
                tenant,
                run,
                after,
                projections: HashMap::new(),
                live: None,
                said: Said::default(),
                under_way: HashMap::new(),
                sink,
            };
            reader.follow()
        }))
    }

    /// Has a reader after this number received the end of the run? Then there is nothing more to read.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn is_reported(&self, caller: &Caller, run: RunId, after: u64) -> Result<bool, Problem> {
        // The end comes after the last entry.
        let Some(last) = after.checked_sub(1) else {
            return Ok(false);
        };
        let row = self.agents.runs.get(&caller.tenant, None, run).await?;
        if !row.is_some_and(|row| row.status.has_ended()) {
            return Ok(false);
        }
        let later = self.agents.runs.events(run, last, 1, watch::PAGE_BYTES).await?;
        Ok(later.is_empty())
    }
}
