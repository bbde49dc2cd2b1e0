//! MCP servers behind the port [`Tools`](crate::ports::tools::Tools), over rmcp.
//!
//! - `config`: `mcp.json`.
//! - `source`: a server's words: `secrets` masks them, `log` counts the lines that they make; `answers`: the memory they take.
//! - `connect`, `list`, `stdio`, `unstarted`, `last_words`, `pipes`, `lines`, `keys`, `message`, `mended`, `group`, `http`, `handler`: one connection,
//!   opened and listed.
//! - `unsolicited`: what a server sends of its own accord over it.
//! - `link`, `session`, `pause`: a connection kept alive, `beside`: what goes on beside its calls; `users`: those of single users;
//!   `server`: a configured server with its links.
//! - `definition`, `slips`, `pins`, `tool_listing`, `registry`: from a server's list to the catalog.
//! - `attempt`, `peer`, `http::direct`, `integers`, `meta`: one call on its way; `result`, `outputs`: what came back.
//! - `bridge`: all servers together, [`Mcp`].
//!
//! Metrics: `gavel_mcp_calls_total{server,outcome}`, `gavel_mcp_call_seconds{server}`,
//! `gavel_mcp_server_up{server}`, `gavel_mcp_breaker_open{server}`, `gavel_mcp_connections_lost_total{server}`,
//! `gavel_mcp_catalog_tools`.
//! Log lines of children have the target `gavel::mcp::stderr`. rmcp itself logs whole messages from
//! `info` down, so `telemetry` keeps it at `warn`.
//!
//! Absent on purpose: sampling, elicitation, roots and tasks (a server asks gavel for nothing), and
//! any second sending of a call that a server may have begun.

mod answers;
mod attempt;
mod beside;
mod breaker;
mod bridge;
pub mod config;
mod connect;
mod definition;
#[cfg(fuzzing)]
pub mod fuzzing;
mod group;
mod handler;
mod http;
mod integers;
mod keys;
mod last_words;
mod lines;
mod link;
mod list;
mod log;
mod mended;
mod message;
mod meta;
mod outputs;
mod pause;
mod peer;
mod pins;
mod pipes;
mod registry;
mod result;
mod secrets;
mod server;
mod session;
mod slips;
mod source;
mod status;
mod stdio;
mod tool_listing;
mod unsolicited;
mod unstarted;
mod users;

pub use bridge::{Mcp, McpOptions, StartError};
pub use config::{ConfigIssue, McpConfig};
pub use pins::{AcceptedTool, PinError};
pub use status::{ServerState, ServerStatus};
