//! Executes runs: claims them, holds their leases, and releases them.

mod leases;
mod sweep;
mod turns;
mod unrecorded;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use leases::Holding;
pub(super) use leases::Leases;
pub(super) use turns::Background;
pub(super) use unrecorded::Unrecorded;

use super::Runs;
use crate::api::runs::AgentRun;
use crate::domain::ids::{RunId, TenantId};
use crate::engine::agent::Fresh;
use crate::engine::live::Live;
use crate::engine::log::Halt;
use crate::engine::stop::Stop;
use crate::ports::runs::{Hold, Lease};

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
