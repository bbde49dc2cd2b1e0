//! The whole system, from a real client to a real database.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod agent_evaluation;
mod agents;
mod approved;
mod at_once;
mod audit;
mod between;
mod bounded;
mod brake;
mod console;
mod contract;
mod crash;
#[allow(dead_code)]
#[path = "../../mcp-servers/github/tests/api/description/mod.rs"]
mod description;
#[allow(dead_code)]
#[path = "../../mcp-servers/google/tests/api/discovery.rs"]
mod discovery;
mod docs;
mod drain;
mod endured;
mod erased;
mod exports;
#[allow(dead_code)]
#[path = "../http/fakes.rs"]
mod fakes;
#[allow(dead_code)]
#[path = "../gemini/server.rs"]
mod far;
mod faults;
mod floods;
mod gemini;
#[allow(dead_code)]
#[path = "../../mcp-servers/github/tests/api/github/mod.rs"]
mod github;
mod google;
mod harness;
mod honest_outcomes;
mod injected;
mod injections;
mod investigator;
mod malformed;
mod misuse;
mod others;
mod panics;
mod planning;
mod policy;
#[path = "../postgres/mod.rs"]
mod postgres;
mod promptly;
#[allow(dead_code)]
#[path = "../mcp/raw.rs"]
mod raw;
mod received;
mod record;
mod replicas;
mod safe_words;
mod scenarios;
#[allow(dead_code)]
#[path = "../mcp/server.rs"]
mod server;
mod settings;
mod slow;
mod specified;
mod stats;
mod storage;
mod streaming;
#[path = "../injections/mod.rs"]
mod strings;
mod task_model;
mod threads;
mod tls;
mod tokens;
mod tools;
mod upstream;
mod watched;
mod why;
#[allow(dead_code)]
#[path = "../../mcp-servers/google/tests/api/google.rs"]
mod workspace;
