//! Tasks that run alongside the calls of a connection.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// Time limit for messages that no caller waits for (a cancellation, an answer to the server).
const ASIDE: Duration = Duration::from_secs(5);

/// Signals from the users of a connection to its link, and the tasks that they do not wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct SideTasks {
    /// The server reported that its tools have changed.
    pub(super) changed: Arc<Notify>,
    /// The server should be checked.
    pub(super) suspect: Arc<Notify>,
    /// The server asked not to be called before this time.
    rests: Arc<Mutex<Option<Instant>>>,
    tasks: TaskTracker,
}

impl SideTasks {
    /// The shutdown waits for `tasks`.
    pub(super) fn new(tasks: &TaskTracker) -> Self {
        Self {
            tasks: tasks.clone(),
            ..Self::default()
        }
    }

    /// The server asks not to be called for this long.
    pub(super) fn rest(&self, pause: Duration) {
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
    }

    /// Until when the server must not be called, if that is in the future.
    pub(super) fn rests(&self) -> Option<Instant> {
        let until = *self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }

    /// Runs this for at most five seconds. May be called while a future is dropped. Without a runtime there is no
    /// connection left to use.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let bounded = async {
            if tokio::time::timeout(ASIDE, work).await.is_err() {
                tracing::debug!("a message outside of a call was not delivered in time");
            }
        };
        self.tasks.spawn_on(bounded, &runtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cancellation is not lost when the process ends: the shutdown waits for it.
    #[tokio::test]
    async fn what_is_left_to_be_done_is_waited_for() {
        let tasks = TaskTracker::new();
        let (begun, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (go, tell) = (begun.clone(), done.clone());
        SideTasks::new(&tasks).spawn(async move {
            go.notified().await;
            tell.notify_one();
        });
        tasks.close();
        assert!(
            tokio::time::timeout(Duration::from_millis(20), tasks.wait())
                .await
                .is_err()
        );
        begun.notify_one();
        tasks.wait().await;
        done.notified().await;
    }
}
