//! GitHub over MCP: repositories, files, pull requests and issues.
//!
//! The server speaks over stdio and acts with one set of credentials: a token, or those of a GitHub App's installation.
//! It keeps no database. A change happens at most once per idempotency key, because what is created carries the key.
//!
//! One call, from the outside in:
//! 1. [`server`] decodes it from the protocol; [`call`] has its deadline, its key, and whether it is a further attempt.
//! 2. [`tools`] turns the arguments into a valid request, and GitHub's answer into the tool's ([`wire`], [`marker`]).
//! 3. [`github`] talks to GitHub: which requests are repeated, what is waited for, and what a refusal means.
//! 4. [`auth`] has the credentials.
//!
//! [`probe`] asks GitHub what they allow, for a check of the operator's setup.
//!
//! By design, a request with an effect is sent once: if its outcome is unknown, the call ends in a protocol error, and
//! the next attempt looks before it acts. No credential reaches another host, a log, an error or an answer.

mod args;
mod auth;
mod call;
mod error;
mod github;
mod marker;
mod probe;
mod server;
mod settings;
mod tools;
mod wire;

pub use args::Args;
pub use gavel_mcp_base::Secret;
pub use probe::{AccessInfo, GitHubInfo, Quota, probe};
pub use settings::Settings;

use gavel_mcp_base::server::Server;
use gavel_mcp_base::stdio;

use crate::server::GitHubTools;

/// All tools, as the server lists them.
pub fn tools() -> Vec<rmcp::model::Tool> {
    tools::all(true)
}

/// Serves until the client disconnects or the process receives SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let tools = GitHubTools::new(Settings::try_from(args)?)?;
    stdio::until_signalled(|stop| stdio::serve(Server::new(tools), stop)).await
}
