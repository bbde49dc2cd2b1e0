//! Traces: which data reaches a collector, and which must not.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod collector;
mod exporter;
#[path = "../api/gemini.rs"]
#[allow(dead_code, reason = "shared with tests/api, which uses all of it")]
mod gemini;
#[path = "../api/harness.rs"]
#[allow(dead_code, reason = "shared with tests/api, which uses all of it")]
mod harness;
#[path = "../postgres/mod.rs"]
mod postgres;
mod process;
#[path = "../mcp/raw.rs"]
#[allow(dead_code, reason = "shared with tests/mcp, which uses all of it")]
mod raw;
mod requests;
mod trace;
