//! Gmail and Google Calendar over MCP.
//!
//! Two tools with effects (`gmail_send`, `calendar_event_create`) over stdio, for Google's REST APIs, with the
//! credentials of the user that the client names. An effect happens at most once per idempotency key.
//!
//! One call, from the outside in:
//! 1. [`server`] decodes it from the protocol; `_meta` names the user and the idempotency key.
//! 2. [`tools`] turns the arguments into a valid request ([`address`], [`time`], [`error`]).
//! 3. [`auth`] gets an access token for this user only.
//! 4. [`effect`] executes it once: the key is in the [`store`] before Google is called, the answer after.
//! 5. [`google`] talks to Google: which requests are repeated, and what a refusal means. [`mime`] writes the e-mail.
//!
//! [`connect`] is for programs that connect users' accounts: a command line, a callback route.
//!
//! By design, no user comes from a tool's arguments, no unsealed token reaches a log, an error or the database, and
//! Google's own messages reach no caller.

mod address;
mod args;
mod attachment;
mod auth;
pub mod connect;
mod effect;
mod error;
mod google;
mod mime;
mod rights;
mod sealing;
mod server;
mod settings;
mod store;
mod time;
mod tools;

pub use args::Args;
pub use gavel_mcp_base::Secret;
pub use settings::Settings;

use gavel_mcp_base::server::Server;
use gavel_mcp_base::stdio;
use tokio_util::sync::CancellationToken;

use crate::server::GoogleTools;
use crate::store::Store;

/// All tools, as the server lists them.
pub fn tools() -> Vec<rmcp::model::Tool> {
    tools::all().to_vec()
}

/// Serves until the client disconnects or the process receives SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    run_stdio(Settings::try_from(args)?).await
}

/// Like [`run`], with parsed settings.
pub async fn run_stdio(settings: Settings) -> anyhow::Result<()> {
    stdio::until_signalled(|stop| serve(settings, stop)).await
}

async fn serve(settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let store = Store::open(&settings.database).await?;
    let pruning = store.keep_pruned(stop.child_token());
    let served = match GoogleTools::new(settings, store.clone()) {
        Ok(tools) => stdio::serve(Server::new(tools), stop).await,
        Err(error) => Err(error),
    };
    pruning.stop().await;
    store.close().await;
    served
}
