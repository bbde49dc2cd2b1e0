//! `gavel serve`: the service, until it is told to stop.

mod banner;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use super::interrupt::told_to_stop;
use super::output;
use crate::adapters::mcp::Mcp;
use crate::app::App;
use crate::config::{Config, Resolved};
use crate::ports::tools::Tools;

/// How long the list of tools waits for servers that are still being connected.
const SERVERS: Duration = Duration::from_secs(15);

pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let config = resolved.config;
    let listener = listener(&config)?;
    let greeting = banner::greeting(&config, listener.local_addr()?);
    let app = App::build(config).await?;
    let (mcp, names) = (Arc::clone(&app.mcp), app.chat.whitelist().to_vec());
    let stop = CancellationToken::new();
    // A service goes on when nobody reads what it says.
    let tell = |text: &str| {
        if let Err(error) = output::line(text) {
            tracing::debug!(%error, "the greeting was not read");
        }
    };
    tell(&greeting);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "gavel serves");
    let mut serving = std::pin::pin!(app.serve(listener, stop.clone()));
    let mut stopped = std::pin::pin!(told_to_stop());
    let mut servers = std::pin::pin!(servers(mcp, names));
    let mut told = false;
    loop {
        tokio::select! {
            served = &mut serving => return served.map(|()| Exit::Done),
            tools = &mut servers, if !told => {
                told = true;
                tell(&tools);
            }
            signal = &mut stopped, if !stop.is_cancelled() => {
                signal.context("signals cannot be handled")?;
                tracing::info!("told to stop; finishing what is under way (once more stops at once)");
                stop.cancel();
                stopped.set(told_to_stop());
                break;
            }
        }
    }
    tokio::select! {
        served = serving => served.map(|()| Exit::Done),
        signal = stopped => {
            signal.context("signals cannot be handled")?;
            tracing::warn!("stopped at once; what was under way is closed by recovery at the next start");
            Ok(Exit::Interrupted)
        }
    }
}

fn listener(config: &Config) -> anyhow::Result<TcpListener> {
    TcpListener::bind(config.listen)
        .with_context(|| format!("cannot listen on {}; --listen or GAVEL_LISTEN names another address", config.listen))
}

/// Waits for the servers, then lists their tools.
async fn servers(mcp: Arc<Mcp>, names: Vec<String>) -> String {
    mcp.ready(&names, Instant::now() + SERVERS).await;
    banner::tools(&mcp.status(), &mcp.catalog())
}
