//! gavel turns messages into logged decisions.
//!
//! This crate is the program: [`cli`], the settings ([`config`]) and [`app`], which builds the service. The rest are the
//! crates of `crates/`, from the outside in; ARCHITECTURE.md shows their dependencies:
//!
//! - [`http`] and [`surfaces`] (`gavel-service`): the edge and the use cases, which are the library API.
//! - [`engine`]: one loop for all surfaces. It does I/O through ports only and reads no database.
//! - [`ports`]: traits for the model, tools, decision log, runs and their queue, quota and clock.
//! - [`api`]: what the HTTP API says; [`domain`] (`gavel-core`): plain data and its rules.
//! - [`adapters`]: implementations of the ports, such as Gemini, MCP and the store. `app` chooses them; a command of
//!   `cli` uses the adapter that it is about.
//!
//! Start reading at [`surfaces::chat`], then `engine`; for agents at [`surfaces::agents`] and
//! [`surfaces::runs`], then `engine::agent`.

pub mod adapters;
pub mod app;
pub mod cli;
pub mod config;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod telemetry;

pub use gavel_api as api;
pub use gavel_core::domain;
pub use gavel_engine as engine;
pub use gavel_ports as ports;
pub use gavel_service::{http, surfaces};
