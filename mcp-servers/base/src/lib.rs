//! What the MCP servers that keep a database have in common, so that it is written and tested once.
//!
//! - [`store`]: a SQLite file or PostgreSQL, opened, migrated and pruned; which database a URL means.
//! - [`meta`]: what a call says in `_meta`: whose it is ([`UserId`]), under which idempotency key.
//! - [`Arguments`]: a tool's arguments, read once into values that cannot be wrong; [`digest`] tells equal ones.
//! - [`ToolError`] and [`Answer`]: what a tool answers, good or bad, as one JSON object.
//! - [`schema`]: the pieces of a tool's description.
//! - [`server`]: the protocol's side of a server that has tools and nothing else; [`stdio`] carries it.
//! - [`Secret`] and [`secret`]: what does not print, and how it is given.
//!
//! Absent on purpose: nothing here knows a tool, a table or a setting of one server.

mod answer;
mod arguments;
mod digest;
mod error;
pub mod meta;
mod moment;
pub mod schema;
pub mod secret;
pub mod server;
pub mod stdio;
pub mod store;
pub mod text;
mod user_id;

pub use answer::Answer;
pub use arguments::{Arguments, missing, wrong};
pub use digest::digest;
pub use error::{Class, Code, ToolError, key_reused};
pub use moment::Moment;
pub use secret::Secret;
pub use user_id::UserId;
