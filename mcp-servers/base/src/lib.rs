//! The common parts of gavel's own MCP servers, so that they are written and tested once.
//!
//! A server is a service (any type), what it says of itself ([`about!`]), and a list of [`Tool`]s of that service. A
//! tool is a struct for its arguments, one for its answer, and an async function between them; what it lists, what it
//! checks and what it reads follow from the structs ([`schema`]).
//!
//! - [`Call`] and [`Meta`]: a call's arguments, and its user ([`UserId`]), its session and its idempotency key.
//! - [`Fault`], [`ToolError`] and [`Answer`]: how a call ends.
//! - [`Server`] is the protocol, [`program!`] its process, [`settings`] how an operator sets it up.
//! - `http`: requests to a service that gets credentials; `ServiceAccount` is one kind of them.
//! - [`shares`]: what one user and one tenant may have of what all have together.
//! - [`Secret`]: a value that is never printed.
//!
//! Nothing here knows a tool or a setting of one server, nor a database: that is `gavel-mcp-store`.

mod answer;
mod digest;
mod error;
#[cfg(feature = "http")]
pub mod http;
mod input;
pub mod meta;
mod moment;
mod path;
pub mod schema;
mod secret;
mod server;
#[cfg(feature = "http")]
mod service_account;
pub mod settings;
pub mod shares;
pub mod text;
mod tool;
mod user_id;

pub use answer::{Answer, Output, Whole, internal};
pub use digest::digest;
pub use error::{Class, Code, ToolError, key_reused};
pub use input::{Unknown, invalid, missing, nullable, read, too_long, unknown, within};
pub use meta::Meta;
pub use moment::Moment;
pub use path::existing;
pub use secret::Secret;
pub use server::{About, Server, run_process, unsettled, until_signalled};
#[cfg(feature = "http")]
pub use service_account::ServiceAccount;
pub use tool::{Call, Fault, Kind, Tool};
pub use user_id::UserId;
