//! MCP servers behind the port [`Tools`](crate::ports::tools::Tools).
//!
//! - `config`: `mcp.json`.
//! - `source`: a server's text, and the memory of its answers; `secrets` masks secrets in it, `log` limits its log lines.
//! - `connection`: the one path of every request, over `process` (a child; `lines`) or `http`; `attempt`: how far a
//!   request came, and what it carries; `message`: the one reader of what servers send; `inbox`: what they send unasked.
//! - `connect`: the handshake, and the list of tools.
//! - `link`: a connection kept alive; `server`: a configured server with its links and those of single users.
//! - `definition`, `tool_listing`: from a server's list to the catalog.
//! - `result`: the result of a call.
//! - `bridge`: all servers together, [`Mcp`].
//!
//! Metrics: `gavel_mcp_calls_total{server,outcome}`, `gavel_mcp_call_seconds{server}`,
//! `gavel_mcp_server_up{server}`, `gavel_mcp_breaker_open{server}`, `gavel_mcp_connections_lost_total{server}`,
//! `gavel_mcp_catalog_tools`.
//! Log lines of children have the target `gavel::mcp::stderr`.
//!
//! Deliberately absent: sampling, elicitation, roots and tasks (a server cannot request anything from gavel), and
//! sending a call again that a server may have started.

mod attempt;
mod bridge;
pub mod config;
mod connect;
mod connection;
mod definition;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod inbox;
mod lines;
mod link;
mod log;
mod message;
mod process;
mod result;
mod secrets;
mod server;
mod source;
mod tool_listing;

use gavel_core::domain;
use gavel_ports as ports;

pub use bridge::{Mcp, McpOptions, StartError};
pub use bridge::{ServerState, ServerStatus};
pub use config::McpConfig;
pub use definition::said;
#[cfg(any(test, feature = "testing"))]
pub use definition::tools_of;
pub use tool_listing::{AcceptedTool, PinError};
