//! Deletes the jobs that have ended. The run's row says how; a table of finished jobs would only grow.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::Shared;

/// At most so many are deleted at once.
const AT_ONCE: usize = 500;
/// Between two tries while the database is away.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until `end`, and then until all that ended before is deleted or the database does not answer.
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
                    "jobs of runs that ended are still in the queue; another process removes them and runs nothing again"
                );
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        ended.clear();
    }
}
