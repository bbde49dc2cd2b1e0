//! A server's own database: a SQLite file or PostgreSQL.

mod location;
mod migrate;
mod open;
mod pruning;

use gavel_mcp_base::UserId;
use sqlx::{PgPool, SqlitePool};

pub use location::Location;
pub use migrate::{Migration, Schema};
pub use pruning::Pruning;

/// The connections to an open database; clones share them.
#[derive(Debug, Clone)]
pub enum Pools {
    /// One connection writes, so that writers in this process queue instead of failing; others read.
    Sqlite {
        /// The connection that writes.
        writer: SqlitePool,
        /// The connections that read.
        readers: SqlitePool,
    },
    /// The connections read and write.
    Postgres(PgPool),
}

impl Pools {
    /// Opens the database, creates what is missing and migrates its tables.
    pub async fn open(location: &Location, schema: &Schema) -> anyhow::Result<Self> {
        open::open(location, schema).await
    }

    /// Closes all connections once they are free.
    pub async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// Idempotency keys are kept for a week.
pub const KEY_LIFE_MICROS: i64 = 7 * 24 * 60 * 60 * 1_000_000;

/// The caller's claim that calls with the same key are one call.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Whose key it is.
    pub user: UserId,
    /// Keys of one tool are not those of another.
    pub tool: &'static str,
    /// The key.
    pub key: String,
    /// The digest of the arguments, which detects a key that is reused for other arguments.
    pub digest: String,
}

/// Runs a block with a pool of the connection that writes. It is compiled for each database. The first field of the store
/// is its [`Pools`].
#[macro_export]
macro_rules! on_writer {
    ($store:expr, |$pool:ident| $run:block) => {
        match &$store.0 {
            $crate::Pools::Sqlite { writer: $pool, .. } => async { $run }.await,
            $crate::Pools::Postgres($pool) => async { $run }.await,
        }
    };
}

/// The same with the connections that read.
#[macro_export]
macro_rules! on_readers {
    ($store:expr, |$pool:ident| $run:block) => {
        match &$store.0 {
            $crate::Pools::Sqlite { readers: $pool, .. } => async { $run }.await,
            $crate::Pools::Postgres($pool) => async { $run }.await,
        }
    };
}
