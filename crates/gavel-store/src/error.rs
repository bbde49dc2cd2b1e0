//! Errors at start ([`StoreError`], for the operator) and in a transaction ([`Fault`], for the writer).

use std::sync::Arc;

use rusqlite::ffi::{
    SQLITE_BUSY, SQLITE_CONSTRAINT, SQLITE_ERROR, SQLITE_INTERRUPT, SQLITE_LOCKED, SQLITE_MISMATCH, SQLITE_NOTADB,
    SQLITE_RANGE, SQLITE_TOOBIG,
};

use super::db::sqlite::sqlite_error;
use crate::ports::records::{QueryError, RecordError};

/// Why a store cannot be opened or migrated.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is invalid or names an unsupported database.
    #[error("DATABASE_URL: {0}")]
    Url(String),
    /// The SQLite file is not a database.
    #[error("the file in DATABASE_URL is not a SQLite database; use another file, or move this one")]
    NotADatabase,
    /// The database does not answer, or rejects the connection.
    #[error("the database is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The database cannot hold what gavel records; says why and what to do.
    #[error("the database {0}")]
    Unfit(String),
    /// A migration was changed after it was applied.
    #[error(
        "migration {version} ({name}) differs from what was applied to this database: it was applied with checksum \
         {applied}, this binary has {ours}; run the binary that wrote it, or restore the file"
    )]
    Changed {
        /// Its number.
        version: i64,
        /// Its name in this binary.
        name: &'static str,
        /// Checksum in the database.
        applied: String,
        /// Checksum in this binary.
        ours: String,
    },
    /// The database was migrated by a newer gavel.
    #[error(
        "the database has migration {found}, newer than the {known} this binary knows: run a binary at least as new as \
         the one that migrated it"
    )]
    Newer {
        /// Highest in the database.
        found: i64,
        /// Highest in this binary.
        known: i64,
    },
    /// A migration failed and was rolled back.
    #[error("migration {version} ({name}) failed: {cause}")]
    Failed {
        /// Its number.
        version: i64,
        /// Its name.
        name: &'static str,
        /// The database's message.
        cause: Arc<str>,
    },
    /// The analysts' views could not be made.
    #[error(
        "the analysts' views: {0}; on PostgreSQL the user of DATABASE_URL needs CREATE on the database, or the schema \
         gavel_v1 as its own (CREATE SCHEMA gavel_v1 AUTHORIZATION …), and for a new role CREATEROLE"
    )]
    Views(Arc<str>),
    /// The writer's thread could not be started.
    #[error("the writer's thread could not be started: {cause}")]
    Thread {
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The database does not exist.
    #[error("there is no database at {0}; run this where `gavel serve` runs, or name its database (DATABASE_URL)")]
    Missing(String),
    /// The database is too old for a read-only command.
    #[error("the database lacks {0} migrations of this version; `gavel migrate` applies them")]
    Behind(usize),
    /// The SQLite file, or its directory, cannot be created.
    #[error("{path}: {cause}")]
    File {
        /// The path.
        path: String,
        /// The cause.
        cause: std::io::Error,
    },
}

impl From<sqlx::Error> for StoreError {
    /// An error while connecting or migrating.
    fn from(error: sqlx::Error) -> Self {
        match sqlite_class(&error) {
            Some(SQLITE_NOTADB) => Self::NotADatabase,
            _ => Self::Unavailable(describe(&error).into()),
        }
    }
}

/// Why a transaction was not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The database is unavailable, locked or full, or asked for a retry: the same rows may succeed later.
    Unavailable(Arc<str>),
    /// The database rejected the rows: a retry does not help.
    Refused(Arc<str>),
}

impl Fault {
    pub(super) fn reason(&self) -> &Arc<str> {
        match self {
            Self::Unavailable(reason) | Self::Refused(reason) => reason,
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let reason: Arc<str> = describe(&error).into();
        match refuses(&error) {
            true => Self::Refused(reason),
            false => Self::Unavailable(reason),
        }
    }
}

/// A read that a write depends on.
pub(super) fn unavailable(error: QueryError) -> RecordError {
    RecordError::Unavailable(error.to_string().into())
}

/// The database's message. PostgreSQL puts row contents into `detail`, which is omitted.
pub(super) fn describe(error: &sqlx::Error) -> String {
    if let Some((code, message)) = sqlite_error(error) {
        return format!("{message} ({code})");
    }
    match error {
        sqlx::Error::Database(database) => match database.code() {
            Some(code) => format!("{} ({code})", database.message()),
            None => database.message().to_owned(),
        },
        sqlx::Error::PoolTimedOut => {
            "no connection for reading was free in time: all are in use, or the database does not answer".to_owned()
        }
        other => other.to_string(),
    }
}

/// Whether the error is about the rows, not about the database.
fn refuses(error: &sqlx::Error) -> bool {
    if let Some(class) = sqlite_class(error) {
        return matches!(
            class,
            SQLITE_ERROR | SQLITE_TOOBIG | SQLITE_CONSTRAINT | SQLITE_MISMATCH | SQLITE_RANGE
        );
    }
    // SQLSTATE classes (PostgreSQL manual, appendix A): connection, resources, operator intervention, system, rollback
    // (deadlock, serialization), lock not available, authorization, no such database, read-only standby.
    const AWAY: [&str; 10] = ["08", "53", "57", "58", "40", "55", "28", "3D", "25", "XX"];
    match error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            !AWAY.iter().any(|class| code.starts_with(class))
        }
        sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::RowNotFound => true,
        _ => false,
    }
}

/// Whether the database ended a statement because it took too long.
pub(super) fn is_too_slow(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => database.code().as_deref() == Some(POSTGRES_QUERY_CANCELED),
        error => sqlite_class(error) == Some(SQLITE_INTERRUPT),
    }
}

/// Whether another connection holds SQLite's lock.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    matches!(sqlite_class(error), Some(SQLITE_BUSY | SQLITE_LOCKED))
}

/// The low byte of an extended result code is its class; `None` for an error that is none of SQLite's.
fn sqlite_class(error: &sqlx::Error) -> Option<i32> {
    sqlite_error(error).map(|(code, _)| code & 0xff)
}

const POSTGRES_QUERY_CANCELED: &str = "57014";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_unavailable_and_a_value_that_does_not_fit_is_refused() {
        let lost = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(Fault::from(lost), Fault::Unavailable(_)));
        let unfit = sqlx::Error::Encode("does not fit".into());
        assert!(matches!(Fault::from(unfit), Fault::Refused(_)));
    }
}
