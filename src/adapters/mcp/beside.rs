//! What goes on beside the calls of a connection.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// Messages that nobody waits for (a cancellation, an answer to the server) may take this long.
const ASIDE: Duration = Duration::from_secs(5);

/// What those who use a connection tell its link, and where they leave what they do not wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// The server says that its tools have changed.
    pub(super) changed: Arc<Notify>,
    /// The server should be looked after.
    pub(super) suspect: Arc<Notify>,
    /// The server asked to be left alone until then.
    rests: Arc<Mutex<Option<Instant>>>,
    tasks: TaskTracker,
}

impl Beside {
    /// The shutdown waits for `tasks`.
    pub(super) fn new(tasks: &TaskTracker) -> Self {
        Self {
            tasks: tasks.clone(),
            ..Self::default()
        }
    }

    /// The server asks to be left alone for so long.
    pub(super) fn rest(&self, pause: Duration) {
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
    }

    /// Until when it is left alone, if that is still to come.
    pub(super) fn rests(&self) -> Option<Instant> {
        let until = *self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }

    /// Does this for at most five seconds; also called where a future is dropped. Without a runtime there is no
    /// connection left that it could be done over.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let bounded = async {
            if tokio::time::timeout(ASIDE, work).await.is_err() {
                tracing::debug!("a message beside a call was not delivered in time");
            }
        };
        self.tasks.spawn_on(bounded, &runtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cancellation is not lost because the process ends: who waits for the tracker waits for it.
    #[tokio::test]
    async fn what_is_left_to_be_done_is_waited_for() {
        let tasks = TaskTracker::new();
        let (begun, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (go, tell) = (begun.clone(), done.clone());
        Beside::new(&tasks).spawn(async move {
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
