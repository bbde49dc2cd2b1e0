//! A task list over MCP.
//!
//! Five tools (`add_task`, `list_tasks`, `update_task`, `complete_task`, `delete_task`) over stdio or streamable HTTP,
//! with tasks in SQLite or PostgreSQL. A task belongs to the user who created it; for other users it does not exist.
//!
//! One call, from the outside in:
//! 1. `gavel-mcp-base` receives it over standard streams, or [`http`] (`POST /mcp`).
//! 2. [`tools`] has the tool: its arguments, its answer, and the request that it is ([`due`], [`error`]).
//! 3. [`server`] determines the user ([`identity`]).
//! 4. [`store`] executes the request in one transaction, together with its idempotency key.
//!
//! By design, the server reads no user from tool arguments, keeps no state in memory between calls, and never shows a
//! database message to a caller.

mod args;
mod cursor;
mod due;
mod error;
mod http;
mod identity;
mod server;
mod settings;
mod store;
mod task;
mod text;
mod tools;

pub use args::Args;
pub use gavel_mcp_base::Secret;
pub use http::HttpServer;

use gavel_mcp_base::until_signalled;
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::settings::{Settings, Wire};
use crate::store::Store;

/// All tools, as the server lists them.
pub fn tools() -> Vec<rmcp::model::Tool> {
    tools::all().iter().map(|tool| tool.listed()).collect()
}

/// Serves until the client disconnects (stdio) or the process receives SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings::try_from(args)?;
    until_signalled(|stop| serve(settings, stop)).await
}

async fn serve(settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let user = match settings.wire {
        Wire::Http(_) => return HttpServer::bind_with(settings).await?.serve(stop).await,
        Wire::Stdio { user } => user,
    };
    let store = Store::open(&settings.database).await?;
    let pruning = store.keep_pruned(stop.child_token());
    let served = tools::server(store.clone(), Identity::Stdio { user }).serve(stop).await;
    pruning.stop().await;
    store.close().await;
    served
}
