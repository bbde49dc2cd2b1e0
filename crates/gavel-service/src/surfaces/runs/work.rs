//! Executes runs: claims them, holds their leases, and releases them.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::api::runs::AgentRun;
use crate::domain::budget::{Budget, Pool, Scope, Share};
use crate::domain::ids::{RunId, TenantId};
use crate::engine::agent::Fresh;
use crate::engine::limits::Stop;
use crate::engine::live::Live;
use crate::engine::log::Halt;
use crate::ports::metrics::{BACKGROUND_RUNS, Gauge};
use crate::ports::records::RecordError;
use crate::ports::runs::{Hold, Lease, MOST_CLAIMS, MOST_TAKES, Turn};

/// How long an interrupted run may take to record the interruption in its journal.
const LAST_ENTRY: Duration = Duration::from_secs(2);

/// How a process leaves a run that it executed.
#[derive(Default)]
pub(super) struct Left {
    /// Was an approval resolved while the run was being released? Then it can be claimed again at once.
    pub(super) again: bool,
    /// The run, if it has ended and this process knows its whole row.
    pub(super) shown: Option<Box<AgentRun>>,
}

impl Runs {
    /// Claims a run whose approval was resolved, or that was cancelled, unless another process has it. It counts
    /// against the limit of waited-for runs. If the limit is reached, the sweep finds the run a moment later.
    pub(crate) fn claim_resolved(self: &Arc<Self>, run: RunId, tenant: &TenantId, user: &str) {
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

    /// Claims a run and executes it as far as possible. Does nothing when another process has the run, or it has ended.
    pub(super) async fn take_up(self: &Arc<Self>, run: RunId) {
        let mut again = true;
        while again && !self.halt.is_cancelled() && !self.leases.is_held(run) {
            let asked = self.now();
            again = match self.agents.runs.take(run).await {
                Ok(Some(lease)) => self.hold(lease, asked, self.halt.clone(), None).await.again,
                Ok(None) => false,
                Err(error) => {
                    tracing::warn!(run_id = %run, %error, "a run could not be started or continued; this process tries again");
                    false
                }
            };
        }
    }

    /// Executes a run that is leased to this process; `asked` is the instant before the lease was requested, and
    /// `fresh` what this process knows of a run that it has just created. When `halt` fires, the run stops between two
    /// steps.
    pub(super) async fn hold(
        self: &Arc<Self>,
        lease: Lease,
        asked: Instant,
        halt: CancellationToken,
        fresh: Option<Fresh>,
    ) -> Left {
        let clock = Arc::clone(&self.agents.engine.clock);
        let hold = Hold::new(lease, self.agents.runs.lease_length(), clock, asked);
        let lost = CancellationToken::new();
        let holding = Holding {
            hold: hold.clone(),
            lost: lost.clone(),
            again: false,
        };
        self.leases.lock().insert(lease.run, holding);
        let halt = Halt {
            between_steps: halt,
            at_once: self.cut.clone(),
        };
        let driven = match fresh {
            Some(fresh) => self.agents.drive_fresh(fresh, hold, halt),
            None => {
                let live = Live::new(lease.run);
                self.agents.drive(lease.run, hold, live, CancellationToken::new(), halt)
            }
        };
        let out_of_time = async {
            self.cut.cancelled().await;
            tokio::time::sleep(LAST_ENTRY).await;
        };
        let (mut suspended, mut shown) = (false, None);
        let left = tokio::select! {
            // First: a run that has ended by itself is not interrupted.
            biased;
            driven = AssertUnwindSafe(driven).catch_unwind() => match driven {
                Ok(Ok(ended)) => {
                    self.unrecorded.continued(lease.run);
                    shown = ended.shown;
                    if ended.in_thread {
                        self.work_waits();
                    }
                    None
                }
                Ok(Err(Stop::Suspended(_))) => {
                    suspended = true;
                    self.unrecorded.continued(lease.run);
                    None
                }
                Ok(Err(Stop::LeaseLost)) => Some("another process has its lease"),
                Ok(Err(Stop::ApprovalGone)) => Some("it was cancelled, or an approval or a grant is no longer valid"),
                Ok(Err(Stop::Halted)) => Some("the service is stopping"),
                // The lease is kept: pending writes need it when the store is available again.
                Ok(Err(Stop::Record(error))) => {
                    tracing::error!(run_id = %lease.run, %error, "a run cannot be recorded; this process stops working on it, and another one continues it");
                    self.unrecorded.failed(lease.run);
                    None
                }
                // The lease is kept here too: the next worker may panic as well, and does not have to do so at once.
                Ok(Err(Stop::StepStopped(_))) | Err(_) => {
                    tracing::error!(run_id = %lease.run, "the execution of a run panicked; another process continues it");
                    self.unrecorded.failed(lease.run);
                    None
                }
            },
            () = lost.cancelled() => Some("another process has its lease"),
            () = out_of_time => Some("the service is stopping"),
        };
        let held = self.leases.lock().remove(&lease.run);
        if let Some(why) = left {
            tracing::warn!(run_id = %lease.run, "this process stops working on a run, and another one continues it: {why}");
            if let Err(error) = self.agents.runs.release(vec![lease]).await {
                tracing::debug!(%error, "a lease could not be released; it will expire");
            }
        }
        Left {
            again: suspended && held.is_some_and(|held| held.again),
            shown,
        }
    }
}

// The leases that this process holds: renewed until their runs end, or lost.

/// The leases that this process holds.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<RunId, Holding>>);

struct Holding {
    hold: Hold,
    /// Fires when another process holds the lease.
    lost: CancellationToken,
    /// Was a claim of this run requested while it was being released?
    again: bool,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is the lease held? If so, its holder checks the run again.
    fn is_held(&self, run: RunId) -> bool {
        match self.lock().get_mut(&run) {
            Some(held) => {
                held.again = true;
                true
            }
            None => false,
        }
    }

    fn all(&self) -> Vec<Hold> {
        self.lock().values().map(|held| held.hold.clone()).collect()
    }
}

impl Runs {
    /// Renews leases until the service stops. This is also how a run learns that it was cancelled through another
    /// process.
    pub async fn keep_leases(self: Arc<Self>, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.ended.cancelled() => return,
            }
            let held = self.leases.all();
            if held.is_empty() {
                continue;
            }
            let asked = self.now();
            match self.agents.runs.renew(held.iter().map(Hold::lease).collect()).await {
                Ok(renewed) => {
                    for hold in held.iter().filter(|hold| !renewed.lost.contains(&hold.lease())) {
                        hold.prolong(asked);
                    }
                    for run in renewed.cancelled {
                        self.agents.running.cancel(run);
                    }
                    for lease in renewed.lost {
                        // The lease may have been released and claimed again meanwhile.
                        if let Some(held) = self
                            .leases
                            .lock()
                            .get(&lease.run)
                            .filter(|held| held.hold.lease() == lease)
                        {
                            held.lost.cancel();
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "leases of runs could not be renewed"),
            }
        }
    }
}

// Looks for what no process does: runs without a worker, expired approvals, runs that several processes lost.

/// Interval between searches for runs without a worker.
const SWEEP: Duration = Duration::from_secs(2);
/// Maximum number of approvals expired, and of runs failed, per sweep.
const AT_ONCE: u32 = 16;

impl Runs {
    /// A run is queued, or may start since another one of its thread has ended: this process looks for it at once, if it
    /// works on background runs. Otherwise, or if it has no place, the sweep of a process that has one finds the run.
    pub(crate) fn work_waits(&self) {
        self.background.queued.notify_one();
    }

    /// Claims runs without a worker, until the service stops.
    pub async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.halt.cancelled() => return,
                () = self.background.queued.notified() => {}
                _ = ticks.tick() => {
                    self.expire().await;
                    self.give_up().await;
                    self.unrecorded.forget_old();
                }
            }
            while let Some(taken) = self.next_in_turn().await {
                let this = Arc::clone(&self);
                self.working.spawn(async move { this.work_on(taken).await });
            }
        }
    }

    /// Expires overdue approvals. The waiting runs continue without them. They have no worker, so the sweep finds them
    /// like all others, within the limit of background runs.
    async fn expire(&self) {
        match self.agents.actions.expire(AT_ONCE).await {
            Ok(runs) => {
                for run in runs {
                    tracing::info!(run_id = %run, "an approval expired, and its action was not executed; its run continues");
                }
            }
            Err(error) => tracing::debug!(%error, "expired approvals cannot be queried"),
        }
    }

    /// Fails runs that several processes in a row did not return. They have no worker, and their journals are not read.
    async fn give_up(self: &Arc<Self>) {
        match self.agents.runs.give_up(AT_ONCE).await {
            Ok(runs) => {
                for run in runs {
                    tracing::error!(
                        run_id = %run,
                        "a run failed: {MOST_CLAIMS} processes in a row were lost while they executed it"
                    );
                }
            }
            Err(error) => tracing::debug!(%error, "runs that must fail cannot be queried"),
        }
    }

    /// Executes waiting runs one after another, starting with this one.
    async fn work_on(self: &Arc<Self>, taken: Taken) {
        let mut next = Some(taken);
        while let Some(taken) = next {
            let run = taken.lease.run;
            let left = self.hold(taken.lease, taken.asked, self.halt.clone(), None).await;
            if left.again {
                self.take_up(run).await;
            }
            drop(taken);
            next = self.next_in_turn().await;
        }
    }
}

/// How often another process may claim a run first before this one waits for the next sweep.
const TRIES: u32 = 64;
/// Maximum number of tenants whose last user is remembered. When it is reached, all are forgotten, and their turns
/// restart.
const TENANTS_REMEMBERED: usize = 4096;

/// The background runs: how many there may be, and whose turn it is.
///
/// Tenants take turns, and so do the users within a tenant, whichever process asks: waiting runs are read from their
/// rows. One tenant cannot use the whole limit ([`Limits::with_reserve`]), so slow runs of one tenant do not block the
/// others.
pub(super) struct Background {
    places: Arc<Budget>,
    /// Signals that this process has queued a run. Runs of other processes are found by the sweep.
    queued: Notify,
    turns: tokio::sync::Mutex<Turns>,
    /// At most one run that earlier processes did not return is executed at a time: if this process is lost as well,
    /// that run is the cause.
    last_take: Arc<Semaphore>,
}

/// The tenant and the users whose turn was last.
#[derive(Default)]
struct Turns {
    tenant: String,
    users: HashMap<TenantId, String>,
}

/// A run that was claimed in its turn, with its share of the limit.
struct Taken {
    lease: Lease,
    /// The instant before the lease was requested.
    asked: Instant,
    _counted: Counted,
    _place: Share,
    _last_take: Option<OwnedSemaphorePermit>,
}

/// A background run that this process works on, in the metric `gavel_background_runs`.
struct Counted;

impl Counted {
    fn gauge() -> Gauge {
        BACKGROUND_RUNS.get()
    }

    fn new() -> Self {
        Self::gauge().increment(1.0);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        Self::gauge().decrement(1.0);
    }
}

impl Background {
    pub(crate) fn new(places: usize) -> Self {
        Counted::gauge().set(0.0);
        Self {
            places: Budget::new(Pool::Background, Pool::Background.limits(places as u64)),
            queued: Notify::new(),
            turns: tokio::sync::Mutex::default(),
            last_take: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Runs {
    /// Claims the run whose turn it is, if there is one and the limit allows it.
    async fn take_next(&self) -> Result<Option<Taken>, RecordError> {
        let background = &self.background;
        let runs = &self.agents.runs;
        // Serialized; otherwise all workers would request the same run.
        let mut turns = background.turns.lock().await;
        let last_take = Arc::clone(&background.last_take).try_acquire_owned().ok();
        let takes = if last_take.is_some() {
            MOST_CLAIMS
        } else {
            MOST_TAKES - 1
        };
        let mut full = HashSet::new();
        let mut after = turns.tenant.clone();
        'tenants: for _ in 0..TRIES {
            if self.halt.is_cancelled() {
                break;
            }
            let first = match runs.waiting(Turn::Tenant(&after), takes).await? {
                None if after.is_empty() => break,
                // Restarts from the first tenant.
                None => {
                    after.clear();
                    continue;
                }
                Some(first) => first,
            };
            let tenant = first.tenant.clone();
            if full.contains(tenant.as_str()) {
                break;
            }
            let mut full_users = HashSet::new();
            let mut user = turns.users.get(&tenant).cloned().unwrap_or_default();
            for _ in 0..TRIES {
                let Some(next) = runs.waiting(Turn::User(&tenant, &user), takes).await? else {
                    if user.is_empty() {
                        break;
                    }
                    user.clear();
                    continue;
                };
                if full_users.contains(next.user.as_str()) {
                    break;
                }
                let place = match background.places.take(tenant.as_str(), next.user.as_str(), 1) {
                    Ok(place) => place,
                    Err(exceeded) => match exceeded.scope {
                        Scope::Process => break 'tenants,
                        Scope::Tenant => break,
                        Scope::User => {
                            user = next.user.as_str().to_owned();
                            full_users.insert(user.clone());
                            continue;
                        }
                    },
                };
                // A run that is just being released here is claimed at the next sweep.
                if self.leases.has(next.run) {
                    break;
                }
                let asked = self.now();
                if let Some(lease) = runs.take(next.run).await? {
                    if turns.users.len() >= TENANTS_REMEMBERED {
                        turns.users.clear();
                    }
                    turns.users.insert(tenant.clone(), next.user.as_str().to_owned());
                    turns.tenant = tenant.as_str().to_owned();
                    return Ok(Some(Taken {
                        lease,
                        asked,
                        _counted: Counted::new(),
                        _place: place,
                        _last_take: last_take.filter(|_| next.takes + 1 >= MOST_TAKES),
                    }));
                }
            }
            after = tenant.as_str().to_owned();
            full.insert(after.clone());
        }
        Ok(None)
    }

    /// Like [`Runs::take_next`]; after an error, the next sweep tries again.
    async fn next_in_turn(&self) -> Option<Taken> {
        self.take_next().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "waiting runs could not be continued; this process tries again");
            None
        })
    }
}

// Runs that this process executed and could not record.

/// Waiting callers get an error after this many failures in a row to record a run.
const PATIENCE: u32 = 2;
/// How long a failure to record a run is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Runs that this process executed and could not record: the time of the last failure, and the number of failures in a
/// row.
#[derive(Default)]
pub(super) struct Unrecorded(Mutex<HashMap<RunId, (Instant, u32)>>);

impl Unrecorded {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, (Instant, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, run: RunId) {
        let mut runs = self.lock();
        let (last, times) = runs.entry(run).or_insert((Instant::now(), 0));
        (*last, *times) = (Instant::now(), times.saturating_add(1));
    }

    pub(crate) fn continued(&self, run: RunId) {
        self.lock().remove(&run);
    }

    /// This process does not learn that others have claimed such runs meanwhile.
    fn forget_old(&self) {
        self.lock().retain(|_, (last, _)| last.elapsed() < REMEMBERED);
    }

    /// Did this process's last execution of the run end without a record?
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is it pointless to wait for this run?
    pub(crate) fn is_hopeless(&self, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|(_, times)| *times >= PATIENCE)
    }
}
