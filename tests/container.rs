//! Planning sessions in real containers: the built gavel with its bundled servers, a real container engine, a real git
//! server, and stand-ins for GitHub's API and for the model.
//!
//! It requires root, podman, runc, debootstrap and git. Without root it is not checked, and says so; with `CI` set that
//! is an error. A suite of its own: its processes wait for nothing but each other.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

#[path = "container/canary.rs"]
mod canary;
#[allow(dead_code)]
#[path = "telemetry/collector.rs"]
mod collector;
#[path = "container/cut.rs"]
mod cut;
#[allow(dead_code)]
#[path = "../mcp-servers/github/tests/api/description/mod.rs"]
mod description;
#[allow(dead_code)]
#[path = "../mcp-servers/docker/tests/engine/mod.rs"]
mod engine;
#[allow(dead_code)]
#[path = "api/gemini.rs"]
mod gemini;
#[path = "container/git.rs"]
mod git;
#[allow(dead_code)]
#[path = "../mcp-servers/github/tests/api/github/mod.rs"]
mod github;
#[path = "container/hostile.rs"]
mod hostile;
#[path = "injections/mod.rs"]
mod injections;
#[path = "container/killed.rs"]
mod killed;
#[path = "container/lost.rs"]
mod lost;
#[path = "container/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "../examples/planning_lab/plan.rs"]
mod plan;
#[path = "postgres/mod.rs"]
mod postgres;
#[path = "container/process.rs"]
mod process;
#[path = "container/service.rs"]
mod service;
#[path = "container/tutorial.rs"]
mod tutorial;
#[path = "container/watched.rs"]
mod watched;
#[path = "container/whole.rs"]
mod whole;
