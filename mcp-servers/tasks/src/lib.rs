//! A task list over MCP.
//!
//! Five tools (`add_task`, `list_tasks`, `update_task`, `complete_task`, `delete_task`) over stdio or streamable HTTP,
//! with tasks in SQLite or PostgreSQL. A task belongs to the user who created it; for other users it does not exist.
//!
//! One call, from the outside in:
//! 1. [`stdio`] or [`transport`] (`POST /mcp`) receives it.
//! 2. [`server`] decodes it from the protocol, and [`identity`] determines the user.
//! 3. [`tools`] turns the arguments into a typed request ([`due`], [`error`]).
//! 4. [`store`] executes the request in one transaction, together with its idempotency key.
//!
//! By design, the server reads no user from tool arguments, keeps no state in memory between calls, and never shows a
//! database message to a caller.

mod args;
mod cursor;
mod due;
mod error;
mod identity;
mod server;
mod settings;
mod store;
mod task;
mod text;
mod tools;
mod transport;

pub use args::Args;
pub use gavel_mcp_base::Secret;
pub use transport::http::HttpServer;

use gavel_mcp_base::server::Server;
use gavel_mcp_base::stdio;
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::server::Tasks;
use crate::settings::{Settings, Wire};
use crate::store::Store;

/// All tools, as the server lists them.
pub fn tools() -> Vec<rmcp::model::Tool> {
    tools::all().to_vec()
}

/// Serves until the client disconnects (stdio) or the process receives SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings::try_from(args)?;
    stdio::until_signalled(|stop| serve(settings, stop)).await
}

async fn serve(settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let user = match settings.wire {
        Wire::Http(_) => return HttpServer::bind_with(settings).await?.serve(stop).await,
        Wire::Stdio { user } => user,
    };
    let store = Store::open(&settings.database).await?;
    let pruning = store.keep_pruned(stop.child_token());
    let server = Server::new(Tasks::new(store.clone(), Identity::Stdio { user }));
    let served = stdio::serve(server, stop).await;
    pruning.stop().await;
    store.close().await;
    served
}
