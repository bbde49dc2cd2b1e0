//! The store's maintenance: renews the lease, recovers records of dead processes, deletes expired rows. Everything goes
//! through the writer's queue. While the database is unavailable, the heartbeats probe it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::op::{Op, Recovered, Ticket};
use super::queue::Queue;
use super::writer::Shared;
use crate::ports::metrics::{RECOVERED_CALLS, RECOVERED_DECISIONS};

/// How often due work is checked, and the pause between two probes while the database is unavailable.
const TICK: Duration = Duration::from_millis(250);
/// Time between two rounds of pruning.
const PRUNE: Duration = Duration::from_secs(600);

/// Runs until `stop`. It starts with a pause, since the store takes the lease when it connects.
pub(super) async fn keep(shared: Arc<Shared>, queue: Queue, stop: CancellationToken) {
    let tick = TICK.min(shared.config.lease / 5);
    let mut beat = Every::new(shared.config.lease / 5);
    let mut sweep = Every::new((shared.config.lease / 3).min(Duration::from_secs(3)));
    // Also at the first tick: a process may live for less than this period.
    let mut prune = Every::new(PRUNE);
    prune.again();
    loop {
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            () = stop.cancelled() => return,
        }
        if (beat.due() || shared.state.reason().is_some())
            && let Err(error) = queue.ask::<()>(Op::RenewLease).await
        {
            // `State` has already logged the outage; this is only the probe's result.
            tracing::debug!(%error, "no heartbeat");
            continue;
        }
        for op in shared.pending_cleanup.take() {
            queue.hand_over(Ticket::silent(op));
        }
        if sweep.due() {
            recover(&queue).await;
        }
        if prune.due() {
            match queue.ask(Op::Prune).await {
                // There may be more rows. The next tick prunes them, so that heartbeats and other records are written
                // in between.
                Ok(true) => prune.again(),
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "nothing was pruned"),
            }
        }
    }
}

/// One round of recovery.
pub(super) async fn recover(queue: &Queue) {
    match queue.ask::<Recovered>(Op::Sweep).await {
        Ok(Recovered { decisions: 0, calls: 0 }) => {}
        Ok(Recovered { decisions, calls }) => {
            tracing::warn!(decisions, calls, "closed open records of dead processes");
            RECOVERED_DECISIONS.get().increment(decisions);
            RECOVERED_CALLS.get().increment(calls);
        }
        Err(error) => tracing::debug!(%error, "recovery failed"),
    }
}

/// A periodic task.
struct Every {
    period: Duration,
    next: Instant,
}

impl Every {
    fn new(period: Duration) -> Self {
        let next = Instant::now() + period;
        Self { period, next }
    }

    fn due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }

    /// Makes it due at the next check.
    fn again(&mut self) {
        self.next = Instant::now();
    }
}
