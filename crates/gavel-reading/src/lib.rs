//! Reads what people write for gavel: definitions, policies, `mcp.json`, `gavel.toml`, evaluation cases.
//!
//! A form is parsed into a [`Node`], a tree of values with their lines. [`At`] is a value at its place. [`Fields`] takes
//! the fields of a map one by one, each with a [`Parser`], which also says what is allowed. Every error goes to one list,
//! with file, line and field, so that all are reported at once. [`record!`] declares a struct whose fields are read so, [`settings!`] one whose fields are
//! settings.
//!
//! No I/O: callers read the files.

mod error;
mod fields;
pub mod json;
pub mod nesting;
mod node;
mod parsers;
mod settings;

pub use error::{Errors, MOST_REPORTED, ReadError};
pub use error::{nearest, unknown_name_message};
pub use fields::{At, Fields, Parser, Rest, Taken, read_file};
pub use json::strict_json;
pub use node::{Content, Key, MOST_NODES, Node, SyntaxError, quoted};
pub use parsers::{
    ByText, Digits, Entries, FLAG, List, Mapped, OneOf, Record, Scalar, Several, TEXT, WORDS, Whole, With,
};
pub use settings::{Defaults, File, FromSetting, Secrecy, Setting, Values};
