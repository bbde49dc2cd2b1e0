//! Ctrl-C and SIGTERM.

use std::io;

/// Comes back when the process is told to stop, from this call on: also when that was before it is waited for.
///
/// # Errors
/// The system takes no handler.
pub(super) fn told_to_stop() -> impl Future<Output = io::Result<()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        async move {
            let (mut interrupt, mut terminate) = (interrupt?, terminate?);
            tokio::select! {
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
            }
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c()
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
