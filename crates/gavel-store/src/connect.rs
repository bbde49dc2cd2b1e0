//! Opens connections from a URL, with the settings each database needs, and tries on a new one what every record needs of
//! a database: before anything runs, after each lost connection, by `gavel migrate`, and by `gavel doctor`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use super::db::sqlite::{Sqlite, SqliteReaders};
use super::db::{Conn, Dialect, Readers, Value};
use super::error::{StoreError, describe};
use super::migrate::{self, MigrationStatus};

/// How long a writer waits for SQLite's lock in one attempt. After it, the writer checks whether any caller still
/// waits.
const SQLITE_LOCK_WAIT: Duration = Duration::from_millis(250);
/// Timeout for a new connection to PostgreSQL.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pages of SQLite's log after which a commit moves it into the database (16 MiB), if the writer found no pause to do
/// so. The decisions in that commit wait for two disk syncs. A decision writes about twelve pages; with SQLite's
/// default of 1,000 pages, one in eighty decisions waited.
const PAGES_OF_THE_LOG: u32 = 4096;

/// The database to connect to.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Sqlite { path: PathBuf, max_bytes: Option<u64> },
    Postgres(Box<PgConnectOptions>),
}

impl Target {
    /// Parses a URL. Does no I/O.
    pub(super) fn parse(url: &str, max_bytes: Option<u64>) -> Result<Self, StoreError> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => {
                if url.contains(":memory:") || url.contains("mode=memory") {
                    return Err(StoreError::Url(
                        "an in-memory database keeps no records; use a file: sqlite:gavel.db".into(),
                    ));
                }
                let options = SqliteConnectOptions::from_str(url).map_err(|error| StoreError::Url(describe(&error)))?;
                // A read-only database cannot store records, and other lock settings would not match those of its other
                // users.
                let settings = url.split_once('?').map_or("", |(_, settings)| settings);
                if let Some(invalid) = settings
                    .split('&')
                    .find(|one| !matches!(*one, "" | "mode=rw" | "mode=rwc"))
                {
                    return Err(StoreError::Url(format!(
                        "{invalid:?} cannot be set for a SQLite database; expected sqlite:PATH"
                    )));
                }
                let path = options.get_filename();
                if path.as_os_str().is_empty() {
                    return Err(StoreError::Url("names no file; expected sqlite:PATH".into()));
                }
                Ok(Self::Sqlite {
                    path: path.to_owned(),
                    max_bytes,
                })
            }
            Some("postgres" | "postgresql") => {
                let options = PgConnectOptions::from_str(url).map_err(|error| StoreError::Url(describe(&error)))?;
                Ok(Self::Postgres(Box::new(
                    options.application_name("gavel").disable_statement_logging(),
                )))
            }
            // The error does not repeat the URL: it may hold a password.
            _ => Err(StoreError::Url(
                "expected sqlite:PATH or postgres://USER@HOST/DATABASE".into(),
            )),
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite { .. } => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Creates the SQLite file and its directory. Only the owner can read the file, since it holds the users' messages.
    pub(super) fn create(&self) -> Result<(), StoreError> {
        let Self::Sqlite { path, .. } = self else {
            return Ok(());
        };
        // Opening and closing a file to which this process has connections would release their locks (fcntl(2),
        // "Advisory record locking").
        if path.exists() {
            return Ok(());
        }
        create_file(path).map_err(|cause| StoreError::File {
            path: path.display().to_string(),
            cause,
        })
    }

    /// A writing connection.
    pub(super) async fn writer(&self) -> Result<Conn, sqlx::Error> {
        match self {
            Self::Sqlite { path, max_bytes } => {
                // What is erased is overwritten in the file.
                let setup = format!(
                    "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {PAGES_OF_THE_LOG}; \
                     PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; \
                     PRAGMA recursive_triggers = ON; PRAGMA secure_delete = ON"
                );
                let sqlite = Sqlite::open(path, SQLITE_LOCK_WAIT, &setup)?;
                if let Some(bytes) = max_bytes {
                    limit_size(&sqlite, *bytes)?;
                }
                Ok(Conn::Sqlite(sqlite))
            }
            // The server ends a statement, a lock wait and an idle transaction when this process has given up, so that a
            // lost client holds no lock. A client that stalls between two statements blocks rows for no longer than
            // `lock_timeout`.
            Self::Postgres(options) => {
                let settings = "SET lock_timeout = '2s'; SET statement_timeout = '5s'; \
                                SET idle_in_transaction_session_timeout = '2s'; SET synchronous_commit = on";
                postgres(options, settings.to_owned()).await
            }
        }
    }

    /// Up to `count` reading connections, opened on demand. The database ends a statement that takes longer than
    /// `limit`.
    pub(super) fn readers(&self, count: u32, limit: Duration) -> Readers {
        match self {
            Self::Sqlite { path, .. } => {
                Readers::Sqlite(SqliteReaders::new(path.clone(), count, CONNECT_TIMEOUT, limit))
            }
            Self::Postgres(options) => {
                let pool = PgPoolOptions::new()
                    .min_connections(0)
                    .max_connections(count)
                    .acquire_timeout(CONNECT_TIMEOUT)
                    .idle_timeout(Duration::from_secs(60))
                    .after_connect(move |conn, _| Box::pin(set(conn, reading(limit))));
                Readers::Postgres(pool.connect_lazy_with(options.as_ref().clone()))
            }
        }
    }

    /// One reading connection.
    pub(super) async fn reader(&self) -> Result<Conn, sqlx::Error> {
        match self {
            Self::Sqlite { path, .. } => {
                let sqlite = Sqlite::open(path, CONNECT_TIMEOUT, "PRAGMA query_only = ON")?;
                Ok(Conn::Sqlite(sqlite))
            }
            Self::Postgres(options) => postgres(options, reading(CONNECT_TIMEOUT)).await,
        }
    }

    /// A connection for counting requests, on PostgreSQL. It does not wait for the disk, and only briefly for a lock:
    /// callers have a fallback. `limit` is the statement timeout.
    pub(super) async fn counter(&self, limit: Duration) -> Result<Conn, sqlx::Error> {
        let Self::Postgres(options) = self else {
            return Err(sqlx::Error::Configuration(
                "requests are not counted in a SQLite database".into(),
            ));
        };
        let limit = limit.as_millis();
        let settings =
            format!("SET lock_timeout = '50ms'; SET statement_timeout = '{limit}ms'; SET synchronous_commit = off");
        postgres(options, settings).await
    }

    /// The path of the SQLite file if the file does not exist.
    pub(super) fn missing(&self) -> Option<&Path> {
        match self {
            Self::Sqlite { path, .. } => Some(&**path).filter(|path| !path.exists()),
            Self::Postgres(_) => None,
        }
    }
}

/// The settings of a reading session.
fn reading(limit: Duration) -> String {
    let limit = limit.as_millis();
    format!("SET default_transaction_read_only = on; SET statement_timeout = '{limit}ms'")
}

async fn postgres(options: &PgConnectOptions, settings: String) -> Result<Conn, sqlx::Error> {
    let connecting = async {
        let mut connection = PgConnection::connect_with(options).await?;
        set(&mut connection, settings).await?;
        Ok(Conn::Postgres(connection))
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    connected.map_err(|_| timed_out("connecting"))?
}

/// By statements: poolers reject settings in the request for a connection.
async fn set(connection: &mut PgConnection, settings: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(settings))
        .execute(connection)
        .await
        .map(drop)
}

pub(super) fn timed_out(doing: &str) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        format!("{doing} took too long"),
    ))
}

fn create_file(path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path).map(drop)
}

fn limit_size(sqlite: &Sqlite, bytes: u64) -> Result<(), sqlx::Error> {
    let mut page_size = 4096;
    sqlite.fetch("PRAGMA page_size", &[], &mut |row| {
        page_size = row.read()?;
        Ok(ControlFlow::Break(()))
    })?;
    let pages = bytes / page_size.max(1);
    // A PRAGMA takes no parameters; the inserted number is computed here.
    sqlite.script(&format!("PRAGMA max_page_count = {}", pages.clamp(1, 1 << 30)))
}

/// How long a statement of the trial may take. A pooler may have no connection for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rows that are written and deleted again: room for a record that follows an effect.
const ROWS: usize = 8;
/// Length of the key of such a row; PostgreSQL has room for 2,704 bytes in an index.
const KEY: usize = 2000;
const READ_ONLY: &str = "it is read-only, such as a standby; name the primary server in DATABASE_URL";
const NO_SESSION: &str = "is behind a pooler that does not keep sessions; set it to session mode (pgbouncer: pool_mode = \
                          session), or name the server itself in DATABASE_URL";
/// SQLite refuses this mode where it has no shared memory.
const NO_JOURNAL: &str = "cannot keep a write-ahead log, as on a network file system; put the file on a local disk";

/// A connection to a database that can hold gavel's records. With `migrating`, applies pending migrations, and waits that
/// long for another process that does the same.
pub(super) async fn connect(
    target: &Target,
    migrating: Option<Duration>,
) -> Result<(Conn, MigrationStatus), StoreError> {
    target.create()?;
    let mut conn = target.writer().await?;
    match fit(target, &mut conn, migrating).await {
        Ok(status) => Ok((conn, status)),
        Err(error) => {
            conn.close().await;
            Err(error)
        }
    }
}

async fn fit(target: &Target, conn: &mut Conn, migrating: Option<Duration>) -> Result<MigrationStatus, StoreError> {
    if let Conn::Postgres(own) = &mut *conn {
        holds_every_text(own).await?;
        if let Conn::Postgres(mut other) = target.writer().await? {
            keeps_sessions(own, &mut other).await?;
            Conn::Postgres(other).close().await;
        }
    }
    let status = match migrating {
        Some(patience) => migrate::migrate(conn, patience).await?,
        None => migrate::status(conn).await?,
    };
    if !status.applied.is_empty() {
        has_room(conn, migrating.unwrap_or(PATIENCE)).await?;
    }
    Ok(status)
}

/// Whether the database can hold every text, and is no standby.
async fn holds_every_text(conn: &mut PgConnection) -> Result<(), StoreError> {
    let encoding = simple(conn, "SHOW server_encoding").await?;
    if encoding != "UTF8" {
        let remedy = "create one: CREATE DATABASE gavel ENCODING 'UTF8' TEMPLATE template0";
        let why = format!("has the encoding {encoding}, which cannot hold every text; {remedy}");
        return Err(StoreError::Unfit(why));
    }
    // A standby may become the primary, so gavel tries again.
    match simple(conn, "SHOW transaction_read_only").await?.as_str() {
        "off" => Ok(()),
        _ => Err(StoreError::Unavailable(READ_ONLY.into())),
    }
}

/// Whether both connections keep their sessions. A pooler of transactions gives one session to several clients: settings
/// and prepared statements of one are then those of another. Each connection leaves a mark and looks for it, in an order
/// that no way of giving out connections repeats.
async fn keeps_sessions(one: &mut PgConnection, other: &mut PgConnection) -> Result<(), StoreError> {
    let marks = [Uuid::now_v7().to_string(), Uuid::now_v7().to_string()];
    let mark = |mark: &str| format!("SELECT set_config('gavel.mark', '{mark}', false)");
    let look = "SELECT current_setting('gavel.mark', true)";
    for _ in 0..3 {
        simple(one, &mark(&marks[0])).await?;
        simple(other, &mark(&marks[1])).await?;
        if simple(other, look).await? != marks[1] || simple(one, look).await? != marks[0] {
            return Err(StoreError::Unfit(NO_SESSION.to_owned()));
        }
    }
    Ok(())
}

/// One text, without a prepared statement: a pooler may lose it.
async fn simple(conn: &mut PgConnection, sql: &str) -> Result<String, sqlx::Error> {
    let rows = conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql)));
    let rows = tokio::time::timeout(PATIENCE, rows).await;
    let rows = rows.map_err(|_| timed_out("a statement"))??;
    let last = rows.last().ok_or(sqlx::Error::RowNotFound)?;
    Ok(last.try_get::<Option<String>, _>(0)?.unwrap_or_default())
}

/// Writes some pages and deletes them again: the database may be full, read-only, or forbid it.
async fn has_room(conn: &mut Conn, patience: Duration) -> Result<(), StoreError> {
    let rows = ["(?, 0, 0)"; ROWS].join(", ");
    let insert = format!("INSERT INTO instance (id, started_at, lease_until) VALUES {rows}");
    let insert = conn.dialect().expand(&insert);
    // Random, so that the database cannot compress them.
    let key = || std::iter::repeat_with(|| Uuid::new_v4().simple().to_string()).take(KEY / 32);
    let keys = std::iter::repeat_with(|| Value::from(key().collect::<String>()))
        .take(ROWS)
        .collect();
    match conn.dialect() {
        Dialect::Postgres => {
            conn.script("BEGIN").await?;
            conn.execute(insert, keys).await?;
            conn.script("ROLLBACK").await?;
        }
        // It takes room on the disk only when it commits.
        Dialect::Sqlite => {
            migrate::lock(conn, patience).await?;
            conn.execute(insert, keys).await?;
            conn.script("COMMIT; DELETE FROM instance WHERE started_at = 0").await?;
        }
    }
    match migrate::has_its_journal(conn).await? {
        true => Ok(()),
        false => Err(StoreError::Unfit(NO_JOURNAL.to_owned())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_is_none_of_ours_is_refused_without_being_repeated() {
        let error = Target::parse("mysql://root:hunter2@db/x", None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("postgres://"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_database_that_keeps_nothing_is_refused() {
        assert!(Target::parse("sqlite::memory:", None).is_err());
        assert!(Target::parse("sqlite:", None).is_err());
        for invalid in ["mode=ro", "immutable=1", "vfs=unix-none", "mode=rwc&cache=shared"] {
            let error = Target::parse(&format!("sqlite:gavel.db?{invalid}"), None).unwrap_err();
            assert!(error.to_string().contains("expected sqlite:PATH"), "{error}");
        }
        assert!(Target::parse("sqlite:mode=ro.db", None).is_ok());
        assert!(Target::parse("sqlite:gavel.db", None).is_ok());
        assert!(Target::parse("sqlite:gavel.db?mode=rwc", None).is_ok());
    }
}
