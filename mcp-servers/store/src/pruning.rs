//! Deletes expired data, at the start and every hour.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use gavel_mcp_base::Moment;

const EVERY: Duration = Duration::from_secs(60 * 60);

/// The running job; a server stops it before it closes the store.
#[derive(Debug)]
pub struct Pruning {
    job: TaskTracker,
    stop: CancellationToken,
}

impl Pruning {
    /// Starts the job. `prune` deletes what has expired now and returns the count. `what` names it: "old idempotency
    /// keys".
    pub fn start<Prune, Pruned>(what: &'static str, stop: CancellationToken, prune: Prune) -> Self
    where
        Prune: Fn(Moment) -> Pruned + Send + 'static,
        Pruned: Future<Output = Result<u64, sqlx::Error>> + Send,
    {
        let stopped = stop.clone();
        let job = TaskTracker::new();
        job.spawn(async move {
            stopped.run_until_cancelled(prune_for_ever(what, prune)).await;
        });
        Self { job, stop }
    }

    /// Stops the job, and waits until it has ended.
    pub async fn stop(self) {
        self.stop.cancel();
        self.job.close();
        self.job.wait().await;
    }
}

async fn prune_for_ever<Prune, Pruned>(what: &str, prune: Prune)
where
    Prune: Fn(Moment) -> Pruned,
    Pruned: Future<Output = Result<u64, sqlx::Error>>,
{
    loop {
        match prune(Moment::now()).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "{what} were deleted"),
            Err(error) => tracing::warn!(%error, "{what} could not be deleted and are kept for now"),
        }
        tokio::time::sleep(EVERY).await;
    }
}
