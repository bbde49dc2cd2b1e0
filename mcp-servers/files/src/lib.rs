//! Files over MCP, read-only.
//!
//! Four tools (`ls`, `read_file`, `glob`, `grep`) over stdio, for everything below one directory.
//!
//! One call, from the outside in:
//! 1. `gavel-mcp-base` receives it over standard streams and decodes it from the protocol.
//! 2. [`tools`] has the tool: its arguments ([`path`]), its answer, and what it does with them ([`error`]).
//! 3. [`server`] gives it a slot, a time limit and a cancellation ([`budget`]).
//! 4. [`root`] opens what a path names, and [`walk`] traverses directories; [`ignores`] decides what to leave out.
//!
//! By design, nothing here writes, and every path is opened below a directory that is already open, so no name, link or
//! race leads out of the root. No state is kept between calls.

mod args;
mod budget;
mod error;
mod ignores;
mod path;
mod root;
mod server;
mod tools;
mod walk;

pub use args::Args;

use std::time::Duration;

use anyhow::Context;
use gavel_mcp_base::{Server, about};

use crate::root::Root;
use crate::server::Files;

const INSTRUCTIONS: &str = "\
Read-only access to the files of one folder. Every path is relative to that folder. Start with ls or \
glob to see what there is, find places with grep, and read them with read_file by offset and limit. An \
answer that is incomplete says so.";

/// All tools, as the server lists them.
pub fn tools() -> Vec<rmcp::model::Tool> {
    tools::all().iter().map(|tool| tool.listed()).collect()
}

/// Serves until the client disconnects or the process receives SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root).with_context(|| format!("cannot serve the directory {}", args.root.display()))?;
    let files = Files::new(root, Duration::from_secs(args.time_limit));
    Server::new(about!("Files", INSTRUCTIONS), files, tools::all())
        .run()
        .await
}
