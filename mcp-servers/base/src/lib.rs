//! The common parts of gavel's own MCP servers, so that they are written and tested once.
//!
//! - [`meta`]: the data of a call in `_meta`: its user ([`UserId`]), its session and its idempotency key.
//! - [`Arguments`]: a tool's arguments, parsed once into valid values; [`digest`] detects equal ones.
//! - [`ToolError`] and [`Answer`]: a tool's answer, for success or error, as one JSON object.
//! - [`schema`]: the parts of a tool's description.
//! - [`server`]: the protocol layer of a server that has tools only; [`stdio`] is its transport, [`run`] its process.
//! - [`shares`]: what one user and one tenant may have of what all have together.
//! - [`Secret`] and [`secret`]: values that are never printed, and how they are set.
//!
//! Nothing here knows a tool or a setting of one server, nor a database: that is `gavel-mcp-store`.

mod answer;
mod arguments;
mod digest;
mod error;
pub mod meta;
mod moment;
mod path;
mod process;
pub mod schema;
pub mod secret;
pub mod server;
pub mod shares;
pub mod stdio;
pub mod text;
mod user_id;

pub use answer::Answer;
pub use arguments::{Arguments, invalid, missing};
pub use digest::digest;
pub use error::{Class, Code, ToolError, key_reused};
pub use moment::Moment;
pub use path::existing;
pub use process::run;
pub use secret::Secret;
pub use user_id::UserId;
