//! `gavel mcp`: the MCP servers of this configuration, started for the duration of the command.

mod accept;
mod call;
mod differences;
mod inspect;
mod list;
mod sdiff;

use std::sync::Arc;

use super::exit::Exit;
use super::interrupt::unless_stopped;
use crate::adapters::mcp::Mcp;
use crate::app;
use crate::config::Resolved;
use crate::ports::tools::Catalog;

pub(super) use self::call::direct;
pub(super) use self::list::headline;

/// The commands of `gavel mcp`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the servers and their tools
    List(list::Args),
    /// Show complete tools: what a call does, and how Gemini gets each schema
    Inspect(inspect::Args),
    /// Accept a pinned tool's current definition, so that it is offered again
    Accept(accept::Args),
    /// Call a tool directly; the constitution's allowlist and the policy do not apply
    Call(call::Args),
}

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    let mcp = app::mcp(&resolved.config)?;
    let done = unless_stopped(async {
        settled(&mcp).await;
        match command {
            Command::List(args) => list::run(&args, &mcp),
            Command::Inspect(args) => inspect::run(&args, &mcp),
            Command::Accept(args) => accept::run(&args, &mcp),
            Command::Call(args) => call::run(args, &mcp).await,
        }
    });
    let done = done.await;
    mcp.shutdown().await;
    done?.unwrap_or(Ok(Exit::Interrupted))
}

/// Waits until every server is connected or known to be down. Its status has the reason.
pub(super) async fn settled(mcp: &Arc<Mcp>) {
    let servers = mcp.status();
    let asked = servers.iter().map(|server| async {
        if let Err(reason) = mcp.refresh(&server.name).await {
            tracing::debug!(server = %server.name, %reason, "not connected");
        }
    });
    futures_util::future::join_all(asked).await;
}

/// The catalog for a page on which many agents and tools name the servers that are not connected: without the reasons,
/// which [`not_connected`] lists once.
pub(super) fn without_reasons(catalog: &Catalog) -> Catalog {
    let mut catalog = catalog.clone();
    catalog.down.values_mut().for_each(String::clear);
    catalog
}

/// The servers that are not connected, one per line, each with the reason; empty if all are connected.
pub(super) fn not_connected(catalog: &Catalog) -> String {
    let servers = catalog.down.iter();
    let lines: String = servers.map(|(name, reason)| format!("\n  {name}: {reason}")).collect();
    match lines.as_str() {
        "" => lines,
        lines => format!("Not connected:{lines}\n"),
    }
}
