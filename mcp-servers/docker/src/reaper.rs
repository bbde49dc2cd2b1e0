//! Removes containers whose time has passed, when the server starts and once a minute. It touches nothing that does not
//! carry gavel's labels.

use std::time::Duration;

use gavel_mcp_base::Moment;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, EngineFault};

const PERIOD: Duration = Duration::from_secs(60);

/// Removes expired containers until the server ends.
pub(crate) async fn run(engine: &Engine, closing: &CancellationToken) {
    loop {
        if let Err(fault) = sweep(engine).await {
            tracing::warn!(?fault, "expired containers could not be looked for");
        }
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

async fn sweep(engine: &Engine) -> Result<(), EngineFault> {
    let now = Moment::now();
    let expired = |expires: Option<Moment>| expires.is_some_and(|expires| expires < now);
    for container in engine.list().await? {
        if expired(container.labels.expires) {
            engine.remove(&container.id).await?;
            tracing::info!(container = container.id, "removed an expired container");
        }
    }
    Ok(())
}
