//! Black-box tests of the GitHub server: the real program over stdio, with a stand-in for GitHub that checks each
//! request and each of its own answers against GitHub's published description of its API.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

mod description;
mod github;
mod harness;

mod changes;
mod containers;
mod credentials;
mod faults;
mod reads;
mod repeats;
mod startup;
