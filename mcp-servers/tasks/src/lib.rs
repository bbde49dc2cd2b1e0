//! A task list over MCP.
//!
//! Five tools (`add_task`, `list_tasks`, `update_task`, `complete_task`, `delete_task`) over stdio or
//! streamable HTTP, kept in SQLite or PostgreSQL. A task belongs to the user who made it; to anybody
//! else it does not exist.
//!
//! One call, from the outside in:
//! 1. [`transport`] carries it: standard streams, or `POST /mcp`.
//! 2. [`server`] takes it from the protocol, and [`identity`] says whose call it is.
//! 3. [`tools`] turns the arguments into a typed request ([`arguments`], [`due`], [`error`]).
//! 4. [`store`] carries the request out in one transaction, together with its idempotency key.
//!
//! Absent on purpose: the server reads no user from tool arguments, keeps nothing in memory between
//! calls, and never shows a database message to a caller.

mod answer;
mod args;
mod arguments;
mod cursor;
mod due;
mod error;
mod identity;
mod secret;
mod server;
mod settings;
mod store;
mod task;
mod text;
mod tools;
mod transport;

pub use args::Args;
pub use secret::Secret;
pub use transport::http::HttpServer;

use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::server::TaskServer;
use crate::settings::{Settings, Wire};
use crate::store::Store;

/// Serves until the client leaves (stdio) or the process is told to stop (SIGTERM, SIGINT).
pub async fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings::try_from(args)?;
    transport::until_signalled(|stop| serve(settings, stop)).await
}

async fn serve(settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let user = match settings.wire {
        Wire::Http(_) => return HttpServer::bind_with(settings).await?.serve(stop).await,
        Wire::Stdio { user } => user,
    };
    let store = Store::open(&settings.database).await?;
    let pruning = store.keep_pruned(stop.child_token());
    let server = TaskServer::new(store.clone(), Identity::Stdio { user });
    let served = transport::stdio::serve(server, stop).await;
    pruning.stop().await;
    store.close().await;
    served
}
