//! Files over MCP, read-only.
//!
//! Four tools (`ls`, `read_file`, `glob`, `grep`) over stdio, for whatever lies below one folder.
//!
//! One call, from the outside in:
//! 1. [`transport`] carries it over standard streams.
//! 2. [`server`] takes it from the protocol and gives it a place, a time limit and an end ([`budget`]).
//! 3. [`tools`] turns the arguments into a typed request ([`path`], [`error`]) and carries it out.
//! 4. [`root`] opens what a path names, and [`walk`] goes through folders; [`ignores`] says what to leave out.
//!
//! Absent on purpose: nothing here writes, and no path is ever opened but below a folder that is open already, so no
//! name, link or race leads out of the root. Nothing is kept between calls.

mod args;
mod budget;
mod error;
mod ignores;
mod path;
mod root;
mod server;
mod tools;
mod transport;
mod walk;

pub use args::Args;

use std::time::Duration;

use anyhow::Context;

use crate::root::Root;
use crate::server::FilesServer;

/// Serves until the client leaves or the process is told to stop (SIGTERM, SIGINT).
pub async fn run(args: Args) -> anyhow::Result<()> {
    let root = Root::open(&args.root).with_context(|| format!("cannot serve the folder {}", args.root.display()))?;
    let server = FilesServer::new(root, Duration::from_secs(args.time_limit));
    transport::serve(server).await
}
