//! The leases that this process holds: renewed until their runs end, or lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::domain::ids::RunId;
use crate::ports::runs::Hold;

/// The leases that this process holds.
#[derive(Default)]
pub(crate) struct Leases(Mutex<HashMap<RunId, Holding>>);

pub(super) struct Holding {
    pub(super) hold: Hold,
    /// Fires when another process holds the lease.
    pub(super) lost: CancellationToken,
    /// Was a claim of this run requested while it was being released?
    pub(super) again: bool,
}

impl Leases {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is the lease held? If so, its holder checks the run again.
    pub(super) fn is_held(&self, run: RunId) -> bool {
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
