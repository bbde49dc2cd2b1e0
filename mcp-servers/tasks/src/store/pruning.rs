//! Forgetting old idempotency keys, at start and every hour.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Store;
use crate::task::Moment;

const EVERY: Duration = Duration::from_secs(60 * 60);

/// The running job; the server waits for it before it closes the store.
#[derive(Debug)]
pub(crate) struct Pruning {
    job: TaskTracker,
    stop: CancellationToken,
}

impl Pruning {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.job.close();
        self.job.wait().await;
    }
}

impl Store {
    pub(crate) fn keep_pruned(&self, stop: CancellationToken) -> Pruning {
        let store = self.clone();
        let stopped = stop.clone();
        let job = TaskTracker::new();
        job.spawn(async move {
            stopped.run_until_cancelled(prune_for_ever(&store)).await;
        });
        Pruning { job, stop }
    }
}

async fn prune_for_ever(store: &Store) {
    loop {
        match store.prune(Moment::now()).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "old idempotency keys were forgotten"),
            Err(error) => tracing::warn!(%error, "old idempotency keys stay for now"),
        }
        tokio::time::sleep(EVERY).await;
    }
}
