//! Work that takes time without waiting: decompressing and converting pages.

use std::sync::Arc;

use gavel_mcp_base::ToolError;
use tokio::sync::{Semaphore, oneshot};

use gavel_mcp_base::internal;

/// How many threads work at once. A thread whose call has timed out works to its end, and counts until then.
const THREADS: usize = 2;
/// Enough for the deepest page that is converted, in bytes. Only what is used takes memory.
const STACK: usize = 32 << 20;

/// The threads.
#[derive(Debug, Clone)]
pub(crate) struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(THREADS)))
    }
}

impl Workers {
    /// Runs on a thread of its own; a panic there is an internal error here.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let permit = self.0.clone().acquire_owned().await.map_err(|_| internal())?;
        let (sender, done) = oneshot::channel();
        let thread = std::thread::Builder::new().name("page".to_owned()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let _permit = permit;
            // The call may have timed out.
            let _ = sender.send(work());
        });
        spawned.map_err(|error| {
            tracing::error!(%error, "a thread cannot be started");
            internal()
        })?;
        done.await.map_err(|_| internal())
    }
}
