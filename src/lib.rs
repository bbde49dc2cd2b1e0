//! gavel turns messages into logged decisions.
//!
//! Layers, from the outside in. `tests/architecture.rs` lists which layer may use which:
//!
//! - [`http`], `cli`: the edge. Extract, call one surface, answer.
//! - `surfaces`: the use cases; the library API.
//! - `engine`: one loop for all surfaces. It does I/O through ports only and reads no database.
//! - [`ports`]: traits for the model, tools, decision log, runs and their queue, quota and clock.
//! - [`api`]: what is sent, one type for each body; every layer above `domain` may use it.
//! - [`domain`]: plain data; every layer may use it.
//! - [`adapters`]: implementations of the ports, such as Gemini, MCP and the store. `app` chooses them; a command of
//!   `cli` uses the adapter that it is about.
//!
//! Start reading at [`surfaces::chat`], then `engine`; for agents at [`surfaces::agents`] and
//! [`surfaces::runs`], then `engine::agent`.

pub mod adapters;
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod http;
pub mod ports;
pub mod surfaces;
pub mod telemetry;

// What tests of all heights share names the crate as the test programs do.
#[cfg(test)]
extern crate self as gavel;
