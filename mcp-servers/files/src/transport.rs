//! MCP over standard input and output.

use anyhow::Context;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::server::FilesServer;

/// Serves until the client closes the pipe, or SIGTERM or SIGINT arrives.
pub(crate) async fn serve(server: FilesServer) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(serve_until(server, stop.clone()));
    tokio::select! {
        served = &mut serving => return served,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    serving.await
}

async fn serve_until(server: FilesServer, stop: CancellationToken) -> anyhow::Result<()> {
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
