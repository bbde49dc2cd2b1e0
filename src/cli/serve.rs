//! `gavel serve`: the service, until it receives a stop signal.

pub(super) mod banner;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Handle;

use super::exit::Exit;
use super::output;
use super::stopping::{Limits, Stopping};
use crate::adapters::mcp::Mcp;
use crate::app::{App, CLOSED, LAST_WORDS};
use crate::config::Resolved;
use crate::ports::tools::Tools;
use crate::surfaces::definitions::FileAgents;

/// How long the list of tools waits for servers that are still connecting.
const SERVERS: Duration = Duration::from_secs(15);

pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let warnings = resolved.warnings;
    let app = App::build(resolved.config).await?;
    // Before this, a signal ends the process at once; nothing has begun yet.
    let (chat, runs) = (Arc::clone(&app.chat), Arc::clone(&app.runs));
    let stopping = Stopping::listen(
        Handle::current(),
        Limits {
            cut_short: app.config.drain_seconds + LAST_WORDS,
            closed: app.config.drain_seconds + CLOSED,
        },
        move || {
            format!(
                "{} chat requests, {} runs of agents",
                chat.under_way(),
                runs.under_way()
            )
        },
    )
    .context("signals cannot be handled")?;
    let mut serving = match app.serve() {
        Ok(serving) => serving,
        Err(error) => {
            app.shutdown(None).await;
            return Err(error);
        }
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), address = %serving.address, "gavel is serving");
    let files = app.directory.files();
    tell(&banner::greeting(
        &app.config,
        serving.address,
        &files.agents,
        &files.place,
        &warnings,
    ));
    let mut servers = std::pin::pin!(servers(Arc::clone(&app.mcp), app.chat.allowlist().to_vec(), files));
    let mut logged = false;
    loop {
        tokio::select! {
            error = serving.ended() => {
                app.shutdown(None).await;
                return Err(error);
            }
            tools = &mut servers, if !logged => {
                logged = true;
                tell(&tools);
            }
            () = stopping.stop.cancelled() => break,
        }
    }
    tracing::info!("finishing requests and runs in progress (a second signal stops gavel at once)");
    let shutdown = app.shutdown(Some(serving));
    if stopping.at_once.run_until_cancelled(shutdown).await.is_none() {
        tracing::warn!("stopped at once; recovery at the next start closes what was in progress");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// A service continues even if its output is not read.
fn tell(text: &str) {
    if let Err(error) = output::line(text) {
        tracing::debug!(%error, "the greeting could not be written");
    }
}

/// Waits for the servers, then lists their tools.
async fn servers(mcp: Arc<Mcp>, names: Vec<String>, files: Arc<FileAgents>) -> String {
    mcp.ready(&names, Instant::now() + SERVERS).await;
    banner::tools(&mcp.status(), &mcp.catalog(), &files.agents)
}
