//! The whole system, from a real client to a real database.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod crash;
mod faults;
mod gemini;
mod harness;
mod misuse;
#[path = "../postgres/mod.rs"]
mod postgres;
mod scenarios;
mod upstream;
