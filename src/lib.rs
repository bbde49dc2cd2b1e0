//! gavel turns messages into decisions, on the record.
//!
//! Layers, each named by the ones before it and by none after:
//!
//! - [`http`], `cli`: the edge. Extract, call one surface, answer.
//! - `surfaces`: the use cases; the library API.
//! - `engine`: one loop for all surfaces. It does I/O through ports alone and reads no database.
//! - [`ports`]: traits for the model, tools, records, runs and their queue, quota and clock.
//! - [`domain`]: plain data; everybody may name it.
//! - [`adapters`]: Gemini, MCP, the store … behind the ports. `app` chooses them; verbs of `cli` use the one they are about.
//!
//! Start reading at [`surfaces::chat`], then `engine`; for agents at [`surfaces::agents`], then `engine::agent`.

pub mod adapters;
pub mod app;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
pub mod evaluation;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod http;
pub mod ports;
pub mod surfaces;
pub mod telemetry;
