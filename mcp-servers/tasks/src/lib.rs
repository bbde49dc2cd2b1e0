//! A task list over MCP.
//!
//! Five tools (`add_task`, `list_tasks`, `update_task`, `complete_task`, `delete_task`) over stdio or
//! streamable HTTP, kept in SQLite or PostgreSQL. A task belongs to the user who made it; to anybody
//! else it does not exist.
//!
//! One call, from the outside in:
//! 1. [`stdio`] carries it, or [`transport`]: `POST /mcp`.
//! 2. [`server`] takes it from the protocol, and [`identity`] says whose call it is.
//! 3. [`tools`] turns the arguments into a typed request ([`due`], [`error`]).
//! 4. [`store`] carries the request out in one transaction, together with its idempotency key.
//!
//! Absent on purpose: the server reads no user from tool arguments, keeps nothing in memory between
//! calls, and never shows a database message to a caller.

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

/// Serves until the client leaves (stdio) or the process is told to stop (SIGTERM, SIGINT).
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
