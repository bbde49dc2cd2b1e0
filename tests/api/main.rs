//! The whole system, from a real client to a real database.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod agent_evaluation;
mod agents;
mod crash;
mod docs;
mod drain;
#[allow(dead_code)]
#[path = "../http/fakes.rs"]
mod fakes;
#[allow(dead_code)]
#[path = "../gemini/server.rs"]
mod far;
mod faults;
mod gemini;
mod harness;
mod injections;
mod investigator;
mod misuse;
mod panics;
#[path = "../postgres/mod.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../mcp/raw.rs"]
mod raw;
mod replicas;
mod scenarios;
#[allow(dead_code)]
#[path = "../mcp/server.rs"]
mod server;
mod settings;
mod storage;
#[path = "../injections/mod.rs"]
mod strings;
mod tls;
mod tokens;
mod tools;
mod upstream;
