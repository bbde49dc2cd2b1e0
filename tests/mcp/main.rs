//! The MCP bridge against real servers: rmcp's over HTTP and as a child process, raw TCP peers for behavior that no
//! correct server has, and published third-party servers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod access;
mod bent;
mod config;
mod faults;
mod floods;
mod http;
mod parser_words;
mod pins;
#[path = "../ports/mod.rs"]
mod ports;
mod raw;
mod server;
mod stdio;
mod support;
mod third_party;
mod tls;
mod tool_dumps;
mod users;
