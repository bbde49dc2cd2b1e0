//! The store's housekeeper: renews the lease, recovers what dead processes left, prunes what expired.
//! All of it goes through the writer's queue. While the database is away its beats are the probe that
//! finds it back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::meters;
use super::op::{Done, Op, Ticket};
use super::queue::Queue;
use super::writer::Shared;

/// How often it looks whether there is something to do, and between two probes while the database is away.
const TICK: Duration = Duration::from_millis(250);
/// Between two rounds of pruning.
const PRUNE: Duration = Duration::from_secs(600);

/// Runs until `stop`. The lease was taken when the store connected, so it begins with a pause.
pub(super) async fn keep(shared: Arc<Shared>, queue: Queue, stop: CancellationToken) {
    let tick = TICK.min(shared.lease / 5);
    let mut beat = Every::new(shared.lease / 5);
    let mut sweep = Every::new((shared.lease / 3).min(Duration::from_secs(3)));
    // At the first tick too: a process may never live as long as the period.
    let mut prune = Every::new(PRUNE);
    prune.again();
    loop {
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            () = stop.cancelled() => return,
        }
        if (beat.due() || shared.state.reason().is_some())
            && let Err(error) = queue.ask(Op::Beat).await
        {
            // The state has said so already; here it is only what the probe found.
            tracing::debug!(%error, "no heartbeat");
            continue;
        }
        for op in shared.lost.take() {
            queue.hand_over(Ticket::silent(op));
        }
        if sweep.due() {
            recover(&queue).await;
        }
        if prune.due() {
            match queue.ask(Op::Prune).await {
                // There may be more. The next tick takes it, so that beats and others' records come in between.
                Ok(Done::Pruned(true)) => prune.again(),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "nothing was pruned"),
            }
        }
    }
}

/// One round of recovery.
pub(super) async fn recover(queue: &Queue) {
    match queue.ask(Op::Sweep).await {
        Ok(Done::Swept(0, 0)) => {}
        Ok(Done::Swept(decisions, calls)) => {
            tracing::warn!(decisions, calls, "closed what dead processes left open");
            meters::recovered_decisions().increment(decisions);
            meters::recovered_calls().increment(calls);
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "no recovery now"),
    }
}

/// Something to be done now and then.
struct Every {
    period: Duration,
    last: Option<Instant>,
}

impl Every {
    fn new(period: Duration) -> Self {
        Self {
            period,
            last: Some(Instant::now()),
        }
    }

    fn due(&mut self) -> bool {
        let due = self.last.is_none_or(|last| last.elapsed() >= self.period);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    /// Due at the next look.
    fn again(&mut self) {
        self.last = None;
    }
}
