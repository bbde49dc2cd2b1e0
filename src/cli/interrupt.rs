//! Ctrl-C and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output;

/// Signals that tell this process to stop.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from this call on.
    ///
    /// # Errors
    /// The system installs no handler.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns with the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns when the process receives a stop signal. Signals count from this call on, also before the future is polled.
///
/// # Errors
/// The system installs no handler.
pub(super) fn until_interrupted() -> impl Future<Output = io::Result<()>> {
    let signals = Signals::listen();
    async move {
        signals?.next().await;
        Ok(())
    }
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

/// As [`or_stopped`]; a user who stops it reads that it is unknown whether this happened.
///
/// # Errors
/// Those of [`or_stopped`].
pub(super) async fn or_stopped_with<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    unknown: &str,
) -> anyhow::Result<T> {
    or_stopped(work).await.inspect_err(|error| {
        if error.is::<Stopped>() {
            output::note(&format!("it is unknown whether {unknown}"));
        }
    })
}
