//! Black-box tests of the Docker server: the real program over stdio, with a real container engine.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

#[path = "../engine/mod.rs"]
mod engine;
mod harness;
#[path = "../../../base/tests/published/mod.rs"]
mod published;

mod clients;
mod confinement;
mod containers;
mod crashes;
mod credentials;
mod endings;
mod files;
mod full_disk;
mod reaper;
mod refusals;
mod scripts;
mod startup;
