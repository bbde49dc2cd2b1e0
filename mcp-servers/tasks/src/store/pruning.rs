//! Forgetting old idempotency keys, at start and every hour.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Store;
use crate::task::Moment;

const EVERY: Duration = Duration::from_secs(60 * 60);

/// The running job; the server waits for it before it closes the store.
#[derive(Debug)]
pub(crate) struct Pruning {
    job: JoinHandle<()>,
    stop: CancellationToken,
}

impl Pruning {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.job.await {
            tracing::error!(%error, "the pruning of idempotency keys ended badly");
        }
    }
}

impl Store {
    pub(crate) fn keep_pruned(&self, stop: CancellationToken) -> Pruning {
        let store = self.clone();
        let stopped = stop.clone();
        let job = tokio::spawn(async move {
            let work = async {
                loop {
                    match store.prune(Moment::now()).await {
                        Ok(0) => {}
                        Ok(pruned) => tracing::info!(pruned, "old idempotency keys were forgotten"),
                        Err(error) => tracing::warn!(%error, "old idempotency keys stay for now"),
                    }
                    tokio::time::sleep(EVERY).await;
                }
            };
            stopped.run_until_cancelled(work).await;
        });
        Pruning { job, stop }
    }
}
