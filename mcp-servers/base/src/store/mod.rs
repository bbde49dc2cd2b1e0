//! A server's own database: a SQLite file or PostgreSQL.

mod location;
mod migrate;
mod open;
mod pruning;

use sqlx::{PgPool, SqlitePool};

pub use location::Location;
pub use migrate::{Migration, Schema};
pub use pruning::Pruning;

/// The connections to an open database; clones share them.
#[derive(Debug, Clone)]
pub enum Pools {
    /// One connection writes, so writers in this process queue instead of failing; a few read.
    Sqlite {
        /// The one that writes.
        writer: SqlitePool,
        /// Those that read.
        readers: SqlitePool,
    },
    /// They read and write.
    Postgres(PgPool),
}

impl Pools {
    /// Opens the database, creates what is missing and brings its tables up to date.
    pub async fn open(location: &Location, schema: &Schema) -> anyhow::Result<Self> {
        open::open(location, schema).await
    }

    /// Closes every connection, once it is free.
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
