//! Ctrl-C and SIGTERM.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that tell this process to stop.
pub(super) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

impl Signals {
    /// Listens from this call on.
    ///
    /// # Errors
    /// The system installs no handler.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            interrupt: signal(SignalKind::interrupt())?,
            #[cfg(unix)]
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns with the next signal.
    ///
    /// # Errors
    /// The system installs no handler.
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

/// Returns when the process receives a stop signal. Signals count from this call on, also before the future is polled.
///
/// # Errors
/// The system installs no handler.
pub(super) fn until_interrupted() -> impl Future<Output = io::Result<()>> {
    let signals = Signals::listen();
    async move { signals?.next().await }
}

/// Runs `work`; returns `None` if a stop signal comes first.
///
/// # Errors
/// Those of [`until_interrupted`].
pub(super) async fn unless_stopped<T>(work: impl Future<Output = T>) -> io::Result<Option<T>> {
    tokio::select! {
        done = work => Ok(Some(done)),
        stopped = until_interrupted() => stopped.map(|()| None),
    }
}
