//! Looks for what no process does: runs without a worker, expired approvals, runs that several processes lost.

use std::sync::Arc;
use std::time::Duration;

use super::Runs;
use super::turns::Taken;
use crate::ports::runs::MOST_CLAIMS;

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
