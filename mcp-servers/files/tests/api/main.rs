//! Black-box tests of the files server: the real program over stdio, on real directories.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

mod harness;

mod confinement;
mod glob;
mod grep;
mod limits;
mod ls;
mod protocol;
mod read_file;
