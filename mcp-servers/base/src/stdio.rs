//! MCP over standard input and output, and the signals that stop a server.

use anyhow::Context;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use rmcp::{RoleServer, Service, ServiceExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Serves until the client closes the pipe or `stop` is cancelled. Running calls then end with an error that does not
/// say whether they took effect.
pub async fn serve(server: impl Service<RoleServer>, stop: CancellationToken) -> anyhow::Result<()> {
    tracing::info!("serving MCP over standard input and output");
    let running = match server.serve_with_ct(stdio_pipes(), stop).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            return Ok(());
        }
        Err(error) => return Err(error).context("the client did not start with a valid MCP initialization"),
    };
    let reason = running.waiting().await.context("the server failed")?;
    tracing::info!(?reason, "stopped");
    Ok(())
}

/// Serves; SIGTERM and SIGINT cancel the token given to `serve`.
pub async fn until_signalled<Serving>(serve: impl FnOnce(CancellationToken) -> Serving) -> anyhow::Result<()>
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
