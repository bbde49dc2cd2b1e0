//! What can go wrong: at start ([`StoreError`], for a person), and in a transaction ([`Fault`], for the writer).

use std::sync::Arc;

use super::sqlite::Failure;

/// Why a store cannot be opened or migrated.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL is not one of a database we speak to.
    #[error("DATABASE_URL: {0}")]
    Url(String),
    /// The SQLite file holds something else.
    #[error("the file that DATABASE_URL names is not a SQLite database; name another one, or move it away")]
    NotADatabase,
    /// The database does not answer, or refuses us.
    #[error("the database is unavailable: {0}")]
    Unavailable(Arc<str>),
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
    /// A migration is missing that a later one was applied after.
    #[error("migration {0} was never applied although a later one was; the table gavel_schema was changed by hand")]
    Gap(i64),
    /// A migration failed; nothing of it was kept.
    #[error("migration {version} ({name}) failed: {cause}")]
    Failed {
        /// Its number.
        version: i64,
        /// Its name.
        name: &'static str,
        /// The database's words.
        cause: Arc<str>,
    },
    /// The system gives no thread for the writer.
    #[error("the writer's thread cannot be made: {cause}")]
    Thread {
        /// The system's words.
        #[source]
        cause: std::io::Error,
    },
    /// There is nothing to read.
    #[error("there is no database at {0}; `gavel serve` and `gavel migrate` make it")]
    Missing(String),
    /// Too old a database for one who only reads.
    #[error("the database lacks {0} migrations of this gavel; `gavel migrate` applies them")]
    Behind(usize),
    /// The SQLite file, or its folder, cannot be made.
    #[error("{path}: {cause}")]
    File {
        /// Where.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
}

impl From<sqlx::Error> for StoreError {
    /// What connecting or migrating met.
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(database) if sqlite_class(database.as_ref()) == Some(SQLITE_NOTADB) => {
                Self::NotADatabase
            }
            _ => Self::Unavailable(describe(&error).into()),
        }
    }
}

/// Why a transaction did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The database is away, locked or full, or asked us to try again: the same rows may go through later.
    Away(Arc<str>),
    /// The database refused what it was given: trying again does not help.
    Refused(Arc<str>),
}

impl Fault {
    pub(super) fn reason(&self) -> &Arc<str> {
        match self {
            Self::Away(reason) | Self::Refused(reason) => reason,
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let reason: Arc<str> = describe(&error).into();
        match &error {
            sqlx::Error::Database(database) if refuses(database.as_ref()) => Self::Refused(reason),
            sqlx::Error::Encode(_)
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::TypeNotFound { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::RowNotFound => Self::Refused(reason),
            _ => Self::Away(reason),
        }
    }
}

/// The database's words without what it quotes: PostgreSQL puts row contents into `detail`, which is left out.
pub(super) fn describe(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => match database.code() {
            Some(code) => format!("{} ({code})", database.message()),
            None => database.message().to_owned(),
        },
        sqlx::Error::PoolTimedOut => {
            "no connection to read with in time: all are in use, or the database does not answer".to_owned()
        }
        other => other.to_string(),
    }
}

/// Is it about the rows, rather than about the database?
fn refuses(error: &dyn sqlx::error::DatabaseError) -> bool {
    if let Some(class) = sqlite_class(error) {
        return matches!(
            class,
            SQLITE_ERROR | SQLITE_TOOBIG | SQLITE_CONSTRAINT | SQLITE_MISMATCH | SQLITE_RANGE
        );
    }
    let code = error.code().unwrap_or_default();
    // SQLSTATE classes (PostgreSQL manual, appendix A): connection, resources, operator intervention, system,
    // rollback (deadlock, serialization), lock not available, authorization, no such database, read-only standby.
    const AWAY: [&str; 10] = ["08", "53", "57", "58", "40", "55", "28", "3D", "25", "XX"];
    !AWAY.iter().any(|class| code.starts_with(class))
}

/// Did the database end a statement for the time it took?
pub(super) fn is_too_slow(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else {
        return false;
    };
    match sqlite_class(database.as_ref()) {
        Some(class) => class == SQLITE_INTERRUPT,
        None => database.code().as_deref() == Some(POSTGRES_QUERY_CANCELED),
    }
}

/// Is somebody else holding SQLite's lock?
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => {
            matches!(sqlite_class(database.as_ref()), Some(SQLITE_BUSY | SQLITE_LOCKED))
        }
        _ => false,
    }
}

/// The low byte of an extended result code is its class (sqlite.org/rescode.html); `None` for another database's error.
fn sqlite_class(error: &dyn sqlx::error::DatabaseError) -> Option<i32> {
    let code = match error.try_downcast_ref::<Failure>() {
        Some(failure) => failure.code,
        None => {
            error.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
            error.code().unwrap_or_default().parse().unwrap_or(0)
        }
    };
    Some(code & 0xff)
}

const SQLITE_ERROR: i32 = 1;
const SQLITE_BUSY: i32 = 5;
const SQLITE_LOCKED: i32 = 6;
const SQLITE_INTERRUPT: i32 = 9;
const SQLITE_TOOBIG: i32 = 18;
const SQLITE_CONSTRAINT: i32 = 19;
const SQLITE_MISMATCH: i32 = 20;
const SQLITE_RANGE: i32 = 25;
const SQLITE_NOTADB: i32 = 26;
const POSTGRES_QUERY_CANCELED: &str = "57014";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_away_and_a_value_that_does_not_fit_is_refused() {
        let lost = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(Fault::from(lost), Fault::Away(_)));
        let unfit = sqlx::Error::Encode("does not fit".into());
        assert!(matches!(Fault::from(unfit), Fault::Refused(_)));
    }
}
