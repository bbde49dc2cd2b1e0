//! Ctrl-C and SIGTERM.

use std::io;

use super::output;

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

/// The user stopped the command, which then ends with its exit status for that.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(super) struct Stopped;

/// Runs `work`; a stop signal that comes first is the error [`Stopped`].
///
/// # Errors
/// Those of the work, and of [`until_interrupted`].
pub(super) async fn or_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    unless_stopped(work).await?.unwrap_or_else(|| Err(Stopped.into()))
}

/// As [`or_stopped`]; a user who stops it reads the note.
///
/// # Errors
/// Those of [`or_stopped`].
pub(super) async fn or_stopped_with<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    note: impl FnOnce() -> String,
) -> anyhow::Result<T> {
    or_stopped(work).await.inspect_err(|error| {
        if error.is::<Stopped>() {
            output::note(&note());
        }
    })
}
