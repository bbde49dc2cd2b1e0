//! MCP servers behind the port [`Tools`](crate::ports::tools::Tools), over rmcp.
//!
//! - `config`: `mcp.json`; `place`: the address of a server without secrets.
//! - `source`: a server's text; `secrets` masks secrets in it, `log` limits its log lines; `answers`: the memory of
//!   answers.
//! - `connect`, `fault`, `list`, `stdio`, `unstarted`, `last_words`, `pipes`, `lines`, `keys`, `message`, `repaired`, `group`,
//!   `http`, `handler`: one connection, opened and listed.
//! - `unsolicited`: a server's unsolicited messages.
//! - `link`, `session`, `pause`: a connection kept alive; `background`: tasks alongside its calls; `users`: connections
//!   of single users; `server`: a configured server with its links; `common`:
//!   what all servers share.
//! - `definition`, `slips`, `pins`, `tool_listing`, `registry`: from a server's list to the catalog.
//! - `attempt`, `peer`, `http::direct`, `integers`, `meta`: one call being sent; `result`, `outputs`: its result.
//! - `bridge`: all servers together, [`Mcp`].
//!
//! Metrics: `gavel_mcp_calls_total{server,outcome}`, `gavel_mcp_call_seconds{server}`,
//! `gavel_mcp_server_up{server}`, `gavel_mcp_breaker_open{server}`, `gavel_mcp_connections_lost_total{server}`,
//! `gavel_mcp_catalog_tools`.
//! Log lines of children have the target `gavel::mcp::stderr`. rmcp itself logs whole messages at `info` and below, so
//! `telemetry` keeps it at `warn`.
//!
//! Deliberately absent: sampling, elicitation, roots and tasks (a server cannot request anything from gavel), and
//! sending a call again that a server may have started.

mod answers;
mod attempt;
mod background;
mod bridge;
mod common;
pub mod config;
mod connect;
mod definition;
mod fault;
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
mod message;
mod meta;
mod outputs;
mod pause;
mod peer;
mod pins;
mod pipes;
mod place;
mod registry;
mod repaired;
mod result;
mod secrets;
mod server;
mod session;
mod slips;
mod slots;
mod source;
mod status;
mod stdio;
mod tool_listing;
mod unsolicited;
mod unstarted;
mod users;

pub use bridge::{Mcp, McpOptions, StartError};
pub use config::{ConfigIssue, McpConfig};
pub(crate) use definition::said;
#[cfg(test)]
pub(crate) use definition::tools_of;
pub use pins::{AcceptedTool, PinError};
pub use status::{ServerState, ServerStatus};
