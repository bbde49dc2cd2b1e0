//! Ctrl-C and SIGTERM.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals to this process that tell it to stop.
pub(super) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

impl Signals {
    /// Those from this call on.
    ///
    /// # Errors
    /// The system takes no handler.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Comes back with the next one.
    ///
    /// # Errors
    /// The system takes no handler.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => Ok(()),
            _ = self.terminate.recv() => Ok(()),
        }
        #[cfg(not(unix))]
        tokio::signal::ctrl_c().await
    }
}

/// Comes back when the process is told to stop, from this call on: also when that was before it is waited for.
///
/// # Errors
/// The system takes no handler.
pub(super) fn told_to_stop() -> impl Future<Output = io::Result<()>> {
    let signals = Signals::listen();
    async move { signals?.next().await }
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
