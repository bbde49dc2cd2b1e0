//! The store's housekeeper: renews the lease, recovers what dead processes left, prunes what expired.
//! All of it goes through the writer's queue. While the database is away its beats are the probe that
//! finds it back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::op::{Done, Op, Ticket};
use super::queue::Queue;
use super::writer::Shared;

/// Between two beats while the database is away.
const PROBE: Duration = Duration::from_millis(250);
/// Between two rounds of pruning.
const PRUNE: Duration = Duration::from_secs(600);

/// Runs until `stop`.
pub(super) async fn keep(shared: Arc<Shared>, queue: Queue, stop: CancellationToken) {
    let beat = shared.lease / 5;
    let sweep = (shared.lease / 3).min(Duration::from_secs(3));
    let (mut swept, mut pruned): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        if let Err(error) = queue.ask(Op::Beat).await {
            // Said once by the state; here it is only the probe's answer.
            tracing::debug!(%error, "no heartbeat");
        } else {
            for decision in shared.lost.take() {
                queue.hand_over(Ticket::silent(Op::Lose(decision)));
            }
            if due(&mut swept, sweep) {
                recover(&queue).await;
            }
            if due(&mut pruned, PRUNE)
                && let Err(error) = queue.ask(Op::Prune).await
            {
                tracing::debug!(%error, "nothing was pruned");
            }
        }
        let pause = if shared.state.reason().is_some() { PROBE } else { beat };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// One round of recovery.
pub(super) async fn recover(queue: &Queue) {
    match queue.ask(Op::Sweep).await {
        Ok(Done::Swept(0, 0)) => {}
        Ok(Done::Swept(decisions, calls)) => {
            tracing::warn!(decisions, calls, "closed what dead processes left open");
            metrics::counter!("gavel_store_recovered_decisions_total").increment(decisions);
            metrics::counter!("gavel_store_recovered_calls_total").increment(calls);
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "no recovery now"),
    }
}

fn due(last: &mut Option<Instant>, every: Duration) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= every);
    if due {
        *last = Some(Instant::now());
    }
    due
}
