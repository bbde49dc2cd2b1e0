//! Deletes the jobs that have ended. The run's row holds the outcome, so finished jobs are not kept.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::Shared;

/// Maximum number of jobs deleted at once.
const AT_ONCE: usize = 500;
/// Time between two attempts while the database is unavailable.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until `end`. Then it deletes the jobs that ended before, unless the database is unavailable.
pub(super) async fn remove(shared: Arc<Shared>, mut finished: UnboundedReceiver<String>, end: CancellationToken) {
    let mut ended = Vec::with_capacity(AT_ONCE);
    loop {
        tokio::select! {
            biased;
            count = finished.recv_many(&mut ended, AT_ONCE) => if count == 0 {
                return;
            },
            () = end.cancelled() => return,
        }
        while let Err(reason) = shared.jobs.remove(&ended).await {
            shared.state.down(&reason);
            if end.is_cancelled() {
                tracing::warn!(
                    jobs = ended.len(),
                    "jobs of ended runs are still in the queue; another process removes them without running them again"
                );
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        ended.clear();
    }
}
