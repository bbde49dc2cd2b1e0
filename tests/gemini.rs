//! The Gemini adapter against servers on this machine: its requests, how it reads responses, and its behavior on
//! failures.
//!
//! `recorded` reads traffic recorded elsewhere (`../shared/gemini/recorded`, or `GAVEL_SHARED`). The other modules
//! follow the wire format and need only the project.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

#[path = "gemini/auth.rs"]
mod auth;
#[path = "gemini/check.rs"]
mod check;
#[path = "gemini/faults.rs"]
mod faults;
#[path = "gemini/helpers.rs"]
mod helpers;
#[path = "gemini/limits.rs"]
mod limits;
#[path = "gemini/metrics.rs"]
mod metrics_tests;
#[path = "gemini/recorded.rs"]
mod recorded;
#[path = "gemini/routes.rs"]
mod routes;
#[path = "gemini/secrets.rs"]
mod secrets;
#[path = "gemini/server.rs"]
mod server;
#[path = "gemini/turns.rs"]
mod turns;
