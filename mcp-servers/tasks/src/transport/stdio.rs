//! MCP over standard input and output.

use anyhow::Context;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use tokio_util::sync::CancellationToken;

use crate::server::TaskServer;

/// Serves until the client closes the pipe or `stop` is cancelled. Calls that are running then may
/// finish.
pub(crate) async fn serve(server: TaskServer, stop: CancellationToken) -> anyhow::Result<()> {
    tracing::info!("serving MCP over standard input and output");
    let running = match server.serve_with_ct(stdio_pipes(), stop).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            return Ok(());
        }
        Err(error) => return Err(error).context("the client did not begin as MCP asks"),
    };
    let reason = running.waiting().await.context("the server ended badly")?;
    tracing::info!(?reason, "stopped");
    Ok(())
}
