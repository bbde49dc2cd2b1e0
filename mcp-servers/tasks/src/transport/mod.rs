//! How calls reach the server.

pub(crate) mod http;
pub(crate) mod stdio;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Serves; SIGTERM and SIGINT cancel the token that `serve` was given.
pub(crate) async fn until_signalled<Serving>(serve: impl FnOnce(CancellationToken) -> Serving) -> anyhow::Result<()>
where
    Serving: Future<Output = anyhow::Result<()>>,
{
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(serve(stop.clone()));
    tokio::select! {
        served = &mut serving => return served,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    serving.await
}
