//! A private PostgreSQL for tests: one server per test binary, one database per test, with gavel's tables or empty.
//!
//! A small shell script runs the server; this process holds the script's standard input. However this process ends, the
//! script then reads end-of-file, stops the server and removes its directory. PostgreSQL refuses to run as root; then
//! the script runs as an unprivileged user.
//!
//! Use it with `mod postgres;` (or `#[path]`), then `postgres::database().await`. A server that cannot be started fails
//! the test: nothing is skipped. `PG_BIN` names the directory of `initdb` if it is not found.
//!
//! The tests kill gavel, and never the machine, so the server waits for no disk (`fsync`), and is in memory if there is
//! room: ext4 takes five times as long for the files of a new database while those of others were just deleted.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::disallowed_methods)]

mod administrator;
mod databases;
#[path = "../ports/mod.rs"]
mod ports;
mod server;
mod wire;

pub(crate) use self::databases::{Template, database, database_with, drop_database, empty_database};
pub(crate) use self::ports::free_port;
pub(crate) use self::server::Server;
pub(crate) use self::wire::Wire;
