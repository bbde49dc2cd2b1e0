//! The command line, run as the real binary: its output, its exit status, and which stream each text goes to.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "cli/agents.rs"]
mod agents;
#[path = "cli/approvals.rs"]
mod approvals;
#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/decisions.rs"]
mod decisions;
#[allow(dead_code)]
#[path = "../mcp-servers/github/tests/api/description/mod.rs"]
mod description;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/doctor_servers.rs"]
mod doctor_servers;
#[path = "cli/eval.rs"]
mod eval;
#[path = "cli/export.rs"]
mod export;
#[allow(dead_code, unreachable_pub, missing_docs)]
#[path = "api/gemini.rs"]
mod gemini;
#[allow(dead_code)]
#[path = "../mcp-servers/github/tests/api/github/mod.rs"]
mod github;
#[path = "cli/harness.rs"]
mod harness;
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/mcp.rs"]
mod mcp;
#[path = "cli/metrics.rs"]
mod metrics;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/policy.rs"]
mod policy;
#[path = "ports/mod.rs"]
mod ports;
#[path = "cli/prices.rs"]
mod prices;
#[allow(dead_code)]
#[path = "mcp/raw.rs"]
mod raw;
#[path = "cli/runs.rs"]
mod runs;
#[path = "cli/serve.rs"]
mod serve;
#[allow(unreachable_pub, missing_docs)]
#[path = "api/task_model.rs"]
mod task_model;
#[path = "cli/threads.rs"]
mod threads;
#[path = "cli/usage.rs"]
mod usage;
