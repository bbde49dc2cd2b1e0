//! Working on runs: taking them up, holding their leases, letting them go.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::AgentRuns;
use crate::domain::budget::{Budget, Limits, Scope, Share};
use crate::domain::ids::{RunId, TenantId};
use crate::domain::thread::WhileBusy;
use crate::engine::live::Live;
use crate::engine::log::{Halt, Stop};
use crate::ports::BoxFuture;
use crate::ports::records::RecordError;
use crate::ports::run_queue::RunWorker;
use crate::ports::runs::{Hold, Lease, MOST_TAKES, Turn};

/// Between two looks for runs that nobody works on.
const SWEEP: Duration = Duration::from_secs(2);
/// How long a run that is cut short may take to say so in its journal.
const LAST_ENTRY: Duration = Duration::from_secs(2);
/// So often in a row the work on a run breaks off unrecorded, until who waits for it is told so.
const PATIENCE: u32 = 2;
/// How long is remembered that the work on a run broke off.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Approvals that expire, and runs that are given up, at one look.
const AT_ONCE: u32 = 16;
/// So often another process may be quicker to take a run up, until this one waits for the next look.
const TRIES: u32 = 64;
/// Tenants whose last user is remembered, until all are forgotten: their turns then begin anew.
const TENANTS_REMEMBERED: usize = 4096;

/// The leases this process holds.
#[derive(Default)]
pub(super) struct Leases(Mutex<HashMap<RunId, Holding>>);

struct Holding {
    hold: Hold,
    /// Fires when somebody else has it.
    lost: CancellationToken,
    /// Somebody wanted it taken up while it was let go of.
    again: bool,
}

impl Leases {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is it held? Then whoever holds it looks at it again.
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

/// The runs in the background: how many there may be, and whose turn it is.
///
/// Tenants take turns, and within a tenant its users, whichever process asks: what waits is read from the runs' rows. A job of the queue
/// only says that something waits. A tenant may not hold all places ([`Limits::with_reserve`]), so slow runs of one leave room for others.
pub(super) struct Background {
    places: Arc<Budget>,
    turns: tokio::sync::Mutex<Turns>,
    /// A run that the processes before did not return is worked on beside no other such run: when this process is lost as well, it
    /// is known which of them it was.
    last_take: Arc<Semaphore>,
}

/// Who was last.
#[derive(Default)]
struct Turns {
    tenant: String,
    users: HashMap<TenantId, String>,
}

/// A run that was taken up in its turn, with its place.
struct Taken {
    lease: Lease,
    /// The instant before the store was asked for the lease.
    asked: Instant,
    _place: Share,
    _last_take: Option<OwnedSemaphorePermit>,
}

impl Background {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places: Budget::new("runs in the background", Limits::with_reserve(places as u64)),
            turns: tokio::sync::Mutex::default(),
            last_take: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Runs that were worked on here and could not be recorded, since they last could: when that was last, and how often in a row.
#[derive(Default)]
pub(super) struct Unrecorded(Mutex<HashMap<RunId, (Instant, u32)>>);

impl Unrecorded {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, (Instant, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broke_off(&self, run: RunId) {
        let mut runs = self.lock();
        let (last, times) = runs.entry(run).or_insert((Instant::now(), 0));
        (*last, *times) = (Instant::now(), times.saturating_add(1));
    }

    pub(super) fn went_on(&self, run: RunId) {
        self.lock().remove(&run);
    }

    /// What others have taken up meanwhile is not heard of here.
    fn forget_old(&self) {
        self.lock().retain(|_, (last, _)| last.elapsed() < REMEMBERED);
    }

    /// Did the last work on this run here end without a record?
    pub(super) fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is it of no use to wait for this run?
    pub(super) fn is_hopeless(&self, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|(_, times)| *times >= PATIENCE)
    }
}

impl AgentRuns {
    /// Takes a run up and drives it as far as it goes. Nothing happens when somebody else has it, or it is over.
    pub(super) async fn take_up(self: &Arc<Self>, run: RunId) {
        let mut again = true;
        while again && !self.halt.is_cancelled() && !self.leases.is_held(run) {
            let asked = self.now();
            again = match self.agents.runs.take(run).await {
                Ok(Some(lease)) => self.hold(lease, asked, self.halt.clone()).await,
                Ok(None) => false,
                Err(error) => {
                    tracing::warn!(run_id = %run, %error, "a run could not be started or continued; this process tries again");
                    false
                }
            };
        }
    }

    /// The instant before the store is asked for a lease.
    pub(super) fn now(&self) -> Instant {
        self.agents.engine.clock.instant()
    }

    /// Drives a run that is leased to this process, since it `asked` for that.
    /// Where `halt` fires it stops between two steps. True: an approval was answered while the run was let go of, so it can be taken up
    /// again at once.
    pub(super) async fn hold(self: &Arc<Self>, lease: Lease, asked: Instant, halt: CancellationToken) -> bool {
        let clock = Arc::clone(&self.agents.engine.clock);
        let hold = Hold::new(lease, self.agents.runs.lease_length(), clock, asked);
        let lost = CancellationToken::new();
        let holding = Holding {
            hold: hold.clone(),
            lost: lost.clone(),
            again: false,
        };
        self.leases.lock().insert(lease.run, holding);
        let cancel = CancellationToken::new();
        let halt = Halt {
            between_steps: halt,
            at_once: self.cut.clone(),
        };
        let driven = self.agents.drive(lease.run, hold, Live::new(lease.run), cancel, halt);
        let out_of_time = async {
            self.cut.cancelled().await;
            tokio::time::sleep(LAST_ENTRY).await;
        };
        let (mut ends, mut suspended) = (false, false);
        let left = tokio::select! {
            // First: what has ended by itself is not cut short.
            biased;
            driven = AssertUnwindSafe(driven).catch_unwind() => match driven {
                Ok(Ok(_)) => {
                    ends = true;
                    self.unrecorded.went_on(lease.run);
                    None
                }
                Ok(Err(Stop::Suspended(_))) => {
                    suspended = true;
                    self.unrecorded.went_on(lease.run);
                    None
                }
                Ok(Err(Stop::LeaseLost)) => Some("another process has its lease, or it was cancelled, or an approval or a grant no longer holds"),
                Ok(Err(Stop::Halted)) => Some("the service stops"),
                // Its lease is not given up: what is still to be written is written under it, when the store is back.
                Ok(Err(Stop::Record(error))) => {
                    tracing::error!(run_id = %lease.run, %error, "a run cannot be recorded; this process stops working on it, and another one continues it");
                    self.unrecorded.broke_off(lease.run);
                    None
                }
                // Nor is it here: whoever takes it up next may break down as well, and need not do so at once.
                Ok(Err(Stop::StepStopped(_))) | Err(_) => {
                    tracing::error!(run_id = %lease.run, "the work on a run panicked; another process continues it");
                    self.unrecorded.broke_off(lease.run);
                    None
                }
            },
            () = lost.cancelled() => Some("another process has its lease"),
            () = out_of_time => Some("the service stops"),
        };
        let held = self.leases.lock().remove(&lease.run);
        if ends {
            self.next_after(lease.run).await;
        }
        if let Some(why) = left {
            tracing::warn!(run_id = %lease.run, "this process stops working on a run, and another one continues it: {why}");
            if let Err(error) = self.agents.runs.release(vec![lease]).await {
                tracing::debug!(%error, "a lease was not given up; it runs out by itself");
            }
        }
        suspended && held.is_some_and(|held| held.again)
    }

    /// Prolongs leases until the service stops. Also how a cancellation from elsewhere reaches a run.
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
                        // It may have been let go of and taken up again meanwhile.
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
                Err(error) => tracing::warn!(%error, "leases of runs could not be prolonged"),
            }
        }
    }

    /// Goes on with what waited for this run to come to its end: the next one of its thread.
    async fn next_after(self: &Arc<Self>, run: RunId) {
        if self.while_busy != WhileBusy::Queue {
            return;
        }
        match self.agents.actions.next_after(run).await {
            Ok(Some(next)) => self.push(next).await,
            Ok(None) => {}
            Err(error) => tracing::debug!(run_id = %run, %error, "the next run of a thread is found a little later"),
        }
    }

    /// Ends what waited for a person longer than it may. The runs that wait for it go on without: nobody works on them then, so they
    /// are looked for as all such, and no more of them are driven at once than of others in the background.
    async fn expire(&self) {
        match self.agents.actions.expire(AT_ONCE).await {
            Ok(runs) => {
                for run in runs {
                    tracing::info!(run_id = %run, "an approval expired, and its action was not executed; its run continues");
                }
            }
            Err(error) => tracing::debug!(%error, "expired approvals cannot be looked for"),
        }
    }

    /// Ends runs that process after process did not return. Nobody works on them, and nothing of them is read.
    async fn give_up(self: &Arc<Self>) {
        match self.agents.runs.give_up(AT_ONCE).await {
            Ok(runs) => {
                for run in runs {
                    tracing::error!(
                        run_id = %run,
                        "a run was given up: {MOST_TAKES} processes in a row were lost while they worked on it"
                    );
                    self.next_after(run).await;
                }
            }
            Err(error) => tracing::debug!(%error, "runs that are to be given up cannot be looked for"),
        }
    }

    /// Takes up the run whose turn it is, if there is one and a place for it.
    async fn take_next(&self) -> Result<Option<Taken>, RecordError> {
        let background = &self.background;
        let runs = &self.agents.runs;
        // One after another, or all of them would ask for the same run.
        let mut turns = background.turns.lock().await;
        let last_take = Arc::clone(&background.last_take).try_acquire_owned().ok();
        let takes = MOST_TAKES - u32::from(last_take.is_none());
        let mut full = HashSet::new();
        let mut after = turns.tenant.clone();
        'tenants: for _ in 0..TRIES {
            if self.halt.is_cancelled() {
                break;
            }
            let first = match runs.waiting(Turn::Tenant(&after), takes).await? {
                None if after.is_empty() => break,
                // Round again, from the first.
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
                // One that is let go of here just now is taken up at the next look.
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

    /// Works on runs that wait, one after another, beginning with this one.
    async fn work_on(self: &Arc<Self>, taken: Taken) {
        let mut next = Some(taken);
        while let Some(taken) = next {
            let run = taken.lease.run;
            if self.hold(taken.lease, taken.asked, self.halt.clone()).await {
                self.take_up(run).await;
            }
            drop(taken);
            next = self.next_in_turn().await;
        }
    }

    /// As [`AgentRuns::take_next`]; what cannot be taken up now is looked for again.
    async fn next_in_turn(&self) -> Option<Taken> {
        self.take_next().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "waiting runs could not be continued; this process tries again");
            None
        })
    }

    /// Looks for runs that nobody works on, until the service stops.
    pub async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.halt.cancelled() => return,
            }
            self.expire().await;
            self.give_up().await;
            self.unrecorded.forget_old();
            while let Some(taken) = self.next_in_turn().await {
                let this = Arc::clone(&self);
                self.working.spawn(async move { this.work_on(taken).await });
            }
        }
    }

    /// What is in the background stops between two steps, and is there for whoever looks next.
    pub fn stop_background(&self) {
        self.halt.cancel();
    }

    /// How many runs are worked on, or being made.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.working.len()
    }

    /// Waits until nothing is worked on any more.
    pub async fn drained(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// What somebody waits for stops between two steps as well.
    pub fn stop_waited_for(&self) {
        self.halt_waited_for.cancel();
    }

    /// Leaves every run where it stands, calls under way among them.
    pub fn cut_short(&self) {
        self.cut.cancel();
    }

    /// Ends the keeping of leases.
    pub fn end(&self) {
        self.ended.cancel();
    }
}

/// What the queue wakes.
pub struct Worker(pub Arc<AgentRuns>);

impl RunWorker for Worker {
    /// A job says that a run waits, and the run whose turn it is is taken up: perhaps another one.
    fn work(&self, _: RunId) -> BoxFuture<'_, ()> {
        let this = Arc::clone(&self.0);
        let tracked = this.working.track_future(async move {
            if let Some(taken) = self.0.next_in_turn().await {
                self.0.work_on(taken).await;
            }
        });
        Box::pin(tracked)
    }
}
