//! What every record needs of a database, tried for real on a new connection: by the service before anything runs and after
//! each lost connection, by `gavel migrate`, and by `gavel doctor`.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};
use uuid::Uuid;

use super::connect::{Target, timed_out};
use super::db::{Conn, Dialect, Value};
use super::error::StoreError;
use super::migrate::{self, MigrationStatus};

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

/// Connects and applies pending migrations: `gavel migrate`.
pub(super) async fn migrate(target: &Target) -> Result<MigrationStatus, StoreError> {
    let (conn, status) = connect(target, Some(migrate::PATIENCE)).await?;
    conn.close().await;
    Ok(status)
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
