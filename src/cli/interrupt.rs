//! Ctrl-C and SIGTERM.

use std::io;

/// Comes back when the process is told to stop.
///
/// # Errors
/// The system takes no handler.
pub(super) async fn told_to_stop() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

/// Does `work`, unless the process is told to stop first; then there is `None`.
///
/// # Errors
/// Those of [`told_to_stop`].
pub(super) async fn unless_stopped<T>(work: impl Future<Output = T>) -> io::Result<Option<T>> {
    tokio::select! {
        done = work => Ok(Some(done)),
        stopped = told_to_stop() => stopped.map(|()| None),
    }
}
