//! Gmail and Google Calendar over MCP.
//!
//! Two tools with effects (`gmail_send`, `calendar_event_create`) over stdio, for Google's REST APIs, with the
//! credentials of the user that the client names. An effect happens at most once per idempotency key.
//!
//! One call, from the outside in:
//! 1. [`server`] has its user and its idempotency key, which `_meta` names.
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

use gavel_mcp_base::{Server, about, until_signalled};
use tokio_util::sync::CancellationToken;

use crate::server::Service;
use crate::store::Store;

const INSTRUCTIONS: &str = "\
The user's own Gmail and Google Calendar. gmail_send and calendar_event_create reach other people at once and cannot be \
undone: use only addresses that the user gave or that another tool found, and tell the user who receives it. \
not_connected, reconnect_required and missing_scope mean that the user must connect the Google account (again); nothing \
else helps.";

/// All tools, as the server lists them.
pub fn tools() -> Vec<rmcp::model::Tool> {
    tools::all().iter().map(|tool| tool.listed()).collect()
}

/// Serves until the client disconnects or the process receives SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings::try_from(args)?;
    until_signalled(|stop| serve(settings, stop)).await
}

async fn serve(settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let store = Store::open(&settings.database).await?;
    let pruning = store.keep_pruned(stop.child_token());
    let served = match Service::new(settings, store.clone()) {
        Ok(service) => {
            Server::new(about!("Gmail and Google Calendar", INSTRUCTIONS), service, tools::all())
                .serve(stop)
                .await
        }
        Err(error) => Err(error),
    };
    pruning.stop().await;
    store.close().await;
    served
}
