//! Black-box tests of the Google server: the real program over stdio, on SQLite and PostgreSQL, with a stand-in for
//! Google that checks each request against Google's own API descriptions.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

/// Turns one scenario into two tests, one for each database.
macro_rules! on_both {
    ($($(#[$about:meta])* async fn $name:ident($world:ident: World) $scenario:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use crate::harness::{Database, World};

            async fn scenario($world: World) $scenario

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                let world = World::new(Database::Sqlite).await;
                let google = world.google.clone();
                scenario(world).await;
                google.finish();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                let world = World::new(Database::Postgres).await;
                let google = world.google.clone();
                scenario(world).await;
                google.finish();
            }
        }
    )*};
}

mod discovery;
mod google;
mod harness;
#[path = "../../../tasks/tests/api/postgres.rs"]
mod postgres;

mod calendar;
mod connect;
mod credentials;
mod doubt;
mod mail;
mod refusals;
mod startup;
