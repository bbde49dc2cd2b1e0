//! Black-box tests of the task server: the real program over stdio and the real listener over HTTP, each on SQLite and
//! on PostgreSQL.

#![allow(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

/// Turns one scenario into four tests: both transports on both databases.
macro_rules! everywhere {
    ($($(#[$about:meta])* async fn $name:ident($world:ident: World) $scenario:block)*) => {$(
        $(#[$about])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use crate::harness::{Database, Wire};

            async fn scenario($world: World) $scenario

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_stdio_on_sqlite() {
                scenario(World::new(Wire::Stdio, Database::Sqlite).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_stdio_on_postgres() {
                scenario(World::new(Wire::Stdio, Database::Postgres).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_http_on_sqlite() {
                scenario(World::new(Wire::Http, Database::Sqlite).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_http_on_postgres() {
                scenario(World::new(Wire::Http, Database::Postgres).await).await;
            }
        }
    )*};
}

mod harness;
mod postgres;

mod add;
mod change;
mod durability;
mod idempotency;
mod identity;
mod isolation;
mod list;
mod protocol;
mod startup;
