//! MCP servers behind the port [`Tools`](crate::ports::tools::Tools).
//!
//! - `config`: `mcp.json`; `place`: the address of a server without secrets.
//! - `source`: a server's text; `secrets` masks secrets in it, `log` limits its log lines; `answers`: the memory of
//!   answers.
//! - `connection`: the one path of every request, over `process` (a child; `lines`, `stderr`, `group`, `unstarted`) or
//!   `http`; `attempt`: how far a request came; `message`: the one reader of what servers send; `inbox`: what they send
//!   unasked; `meta`, `integers`: what a call carries.
//! - `connect`: the handshake; `list`: the list of tools.
//! - `link`, `pause`: a connection kept alive; `background`: tasks alongside its calls; `users`: connections of single
//!   users; `server`: a configured server with its links; `common`: what all servers share.
//! - `definition`, `slips`, `pins`, `tool_listing`, `registry`: from a server's list to the catalog.
//! - `result`, `outputs`: the result of a call.
//! - `bridge`: all servers together, [`Mcp`].
//!
//! Metrics: `gavel_mcp_calls_total{server,outcome}`, `gavel_mcp_call_seconds{server}`,
//! `gavel_mcp_server_up{server}`, `gavel_mcp_breaker_open{server}`, `gavel_mcp_connections_lost_total{server}`,
//! `gavel_mcp_catalog_tools`.
//! Log lines of children have the target `gavel::mcp::stderr`.
//!
//! Deliberately absent: sampling, elicitation, roots and tasks (a server cannot request anything from gavel), and
//! sending a call again that a server may have started.

mod answers;
mod attempt;
mod background;
mod bridge;
pub mod config;
mod connect;
mod connection;
mod definition;
#[cfg(fuzzing)]
pub mod fuzzing;
mod group;
mod http;
mod inbox;
mod lines;
mod link;
mod list;
mod log;
mod message;
mod meta;
mod outputs;
mod pins;
mod process;
mod registry;
mod result;
mod secrets;
mod server;
mod slips;
mod slots;
mod source;
mod status;
mod stderr;
mod tool_listing;
mod unstarted;
mod users;

use gavel_core::domain;
use gavel_ports as ports;

pub use bridge::{Mcp, McpOptions, StartError};
pub use config::McpConfig;
pub use definition::said;
#[cfg(any(test, feature = "testing"))]
pub use definition::tools_of;
pub use pins::{AcceptedTool, PinError};
pub use status::{ServerState, ServerStatus};
