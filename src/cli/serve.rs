//! `gavel serve`: the service, until it is told to stop.

mod banner;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Handle;

pub(super) use self::banner::reachable;
use super::exit::Exit;
use super::output;
use super::stopping::{Limits, Stopping};
use crate::adapters::mcp::Mcp;
use crate::app::{App, CLOSED, LAST_WORDS};
use crate::config::Resolved;
use crate::ports::tools::Tools;

/// How long the list of tools waits for servers that are still being connected.
const SERVERS: Duration = Duration::from_secs(15);

pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let app = App::build(resolved.config).await?;
    // Until here a signal ends the process at once; nothing was begun.
    let (chat, agents) = (Arc::clone(&app.chat), Arc::clone(&app.agents));
    let stopping = Stopping::listen(
        Handle::current(),
        Limits {
            cut_short: app.config.drain + LAST_WORDS,
            closed: app.config.drain + CLOSED,
        },
        move || {
            format!(
                "{} chat requests, {} runs of agents",
                chat.under_way(),
                agents.under_way()
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
    tracing::info!(version = env!("CARGO_PKG_VERSION"), address = %serving.address, "gavel serves");
    let files = app.agents.directory().files();
    let agents = format!(
        "{} ({}); `gavel agents list` shows them",
        files.agents.len(),
        files.place
    );
    let has_agents = !files.agents.is_empty();
    tell(&banner::greeting(&app.config, serving.address, &agents, has_agents));
    let mut servers = std::pin::pin!(servers(Arc::clone(&app.mcp), app.chat.whitelist().to_vec()));
    let mut told = false;
    loop {
        tokio::select! {
            error = serving.ended() => {
                app.shutdown(None).await;
                return Err(error);
            }
            tools = &mut servers, if !told => {
                told = true;
                tell(&tools);
            }
            () = stopping.told.cancelled() => break,
        }
    }
    tracing::info!("finishing what is under way (a second signal stops gavel at once)");
    let shutdown = app.shutdown(Some(serving));
    if stopping.at_once.run_until_cancelled(shutdown).await.is_none() {
        tracing::warn!("stopped at once; recovery closes at the next start what was under way");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// A service goes on when nobody reads what it says.
fn tell(text: &str) {
    if let Err(error) = output::line(text) {
        tracing::debug!(%error, "the greeting was not read");
    }
}

/// Waits for the servers, then lists their tools.
async fn servers(mcp: Arc<Mcp>, names: Vec<String>) -> String {
    mcp.ready(&names, Instant::now() + SERVERS).await;
    banner::tools(&mcp.status(), &mcp.catalog())
}
