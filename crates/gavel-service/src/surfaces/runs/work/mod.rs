//! Executes runs: claims them, holds their leases, and releases them.

mod turns;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

pub(super) use self::turns::Background;
use self::turns::Taken;
pub(super) use self::turns::Unrecorded;
use super::Runs;
use crate::api::runs::AgentRun;
use crate::domain::ids::{RunId, TenantId};
use crate::engine::agent::Fresh;
use crate::engine::limits::Stop;
use crate::engine::live::Live;
use crate::engine::log::Halt;
use crate::ports::runs::{Hold, Lease, MOST_CLAIMS};

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
