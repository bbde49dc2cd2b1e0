//! A call's slot, time limit and cancellation.

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{ToolError, internal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::error::{self, Code};
use crate::root::Root;

/// How many calls read at once; each has its own thread.
const PLACES: usize = 8;
/// How long a call may take to notice its deadline. After that, the file system itself hangs.
const GRACE: Duration = Duration::from_secs(2);

/// A directory, and the time limit of a call.
#[derive(Debug)]
pub(crate) struct Files {
    root: Root,
    time_limit: Duration,
    places: Arc<Semaphore>,
}

impl Files {
    pub(crate) fn new(root: Root, time_limit: Duration) -> Self {
        Self {
            root,
            time_limit,
            places: Arc::new(Semaphore::new(PLACES)),
        }
    }

    /// Reads on a thread, which ends early once `dropped` is cancelled.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        dropped: CancellationToken,
        read: impl FnOnce(&Root, &Budget) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let Ok(place) = tokio::time::timeout(self.time_limit, self.places.clone().acquire_owned()).await else {
            return Err(ToolError::new(
                Code::Busy,
                format!("{PLACES} calls are running, and none has ended in time. Try again later."),
            ));
        };
        let (root, budget) = (self.root.clone(), Budget::new(self.time_limit, dropped));
        // The slot is released when the thread ends, which may be after its call timed out.
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            read(&root, &budget)
        });
        match tokio::time::timeout(self.time_limit + GRACE, done).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::error!(%error, "a call failed");
                Err(internal())
            }
            Err(_) => {
                tracing::error!("the file system hangs");
                Err(error::too_slow())
            }
        }
    }
}
