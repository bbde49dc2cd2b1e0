//! Black-box tests of the web server: the real program over stdio, with sites on loopback that it may not reach, or may
//! by the operator's setting.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

mod harness;
#[path = "../../../base/tests/published/mod.rs"]
mod published;
mod site;

mod clients;
mod limits;
mod names;
mod pages;
mod refusals;
mod robots;
mod search;
mod startup;
