//! Black-box tests of the GitHub server: the real program over stdio, with a stand-in for GitHub that checks each
//! request and each of its own answers against GitHub's published description of its API.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

mod description;
#[allow(dead_code, reason = "shared with the docker server, which uses all of it")]
#[path = "../../../docker/tests/engine/mod.rs"]
mod engine;
mod github;
mod harness;
#[path = "../../../base/tests/published/mod.rs"]
mod published;

mod changes;
mod clients;
mod containers;
mod credentials;
mod faults;
mod reads;
mod repeats;
mod startup;
