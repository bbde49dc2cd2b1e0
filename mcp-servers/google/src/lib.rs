//! Gmail and Google Calendar over MCP.
//!
//! Two tools (`gmail_send`, `calendar_event_create`) over stdio, against Google's REST APIs, each with the credentials of
//! the user whom the client names. What has an effect has it at most once under one idempotency key.
//!
//! One call, from the outside in:
//! 1. [`server`] takes it from the protocol; `_meta` says whose call it is and under which key.
//! 2. [`tools`] turns the arguments into a request that cannot be wrong ([`address`], [`time`], [`error`]).
//! 3. [`auth`] gets an access token for this user and nobody else.
//! 4. [`effect`] does it once: the key is in the [`store`] before Google is asked, the answer after.
//! 5. [`google`] speaks with Google: what is sent again and what never, and what a refusal means. [`mime`] writes the e-mail.
//!
//! [`connect`] is for whoever lets people connect their accounts: a command line, a callback route.
//!
//! Absent on purpose: no user comes from a tool's arguments, no token reaches a log, an error or the database unsealed, and
//! Google's own words reach no caller.

mod address;
mod args;
mod attachment;
mod auth;
pub mod connect;
mod effect;
mod error;
mod google;
mod mime;
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

/// Serves until the client leaves or the process is told to stop (SIGTERM, SIGINT).
pub async fn run(args: Args) -> anyhow::Result<()> {
    run_stdio(Settings::try_from(args)?).await
}

/// The same, with settings that were read before.
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
