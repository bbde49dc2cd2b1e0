//! Opens the database.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::{Location, Pools, Schema, migrate};

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const START_PATIENCE: Duration = Duration::from_secs(15);
const READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 8;

pub(super) async fn open(location: &Location, schema: &Schema) -> anyhow::Result<Pools> {
    match location {
        Location::Sqlite(options) => open_sqlite(options, schema).await,
        Location::Postgres(options) => open_postgres(options, schema).await,
    }
}

async fn open_sqlite(options: &SqliteConnectOptions, schema: &Schema) -> anyhow::Result<Pools> {
    let path = options.get_filename().to_owned();
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent)
            .await
            .with_context(|| format!("cannot create the directory {}", parent.display()))?;
    }
    create_file(&path)
        .await
        .with_context(|| format!("cannot create the {} database {}", schema.name, path.display()))?;
    let options = options
        .clone()
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT);
    let begun = Instant::now();
    loop {
        match try_open_sqlite(&options, schema).await {
            // SQLite does not wait for another process that is creating the file or its log.
            Err(error) if is_busy(&error) && begun.elapsed() < START_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => {
                return opened.with_context(|| format!("cannot open the {} database {}", schema.name, path.display()));
            }
        }
    }
}

/// Creates the file here, since SQLite would let all users of the machine read it: it contains what users wrote. SQLite
/// gives the files next to a database the same permissions.
async fn create_file(path: &Path) -> std::io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    options.mode(0o600);
    options.open(path).await.map(drop)
}

async fn try_open_sqlite(options: &SqliteConnectOptions, schema: &Schema) -> anyhow::Result<Pools> {
    let writer = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options.clone())
        .await?;
    migrate::sqlite(&writer, schema).await?;
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options.clone().pragma("query_only", "ON"))
        .await?;
    Ok(Pools::Sqlite { writer, readers })
}

fn is_busy(error: &anyhow::Error) -> bool {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    let Some(sqlx::Error::Database(error)) = error.downcast_ref() else {
        return false;
    };
    let code = error.code().and_then(|code| code.parse::<u32>().ok());
    // The low byte is the primary code; the other bytes say what was busy.
    code.is_some_and(|code| matches!(code & 0xff, BUSY | LOCKED))
}

async fn open_postgres(options: &PgConnectOptions, schema: &Schema) -> anyhow::Result<Pools> {
    let options = options.clone().application_name(&format!("gavel-mcp-{}", schema.name));
    let opened = async {
        // Before the first connection the pool keeps trying, so the database may start later.
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(START_PATIENCE)
            .connect_with(options.clone())
            .await?;
        migrate::postgres(&pool, schema).await?;
        pool.close().await;
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.clone());
        anyhow::Ok(Pools::Postgres(pool))
    };
    opened.await.with_context(|| {
        format!(
            "cannot open the {} database on PostgreSQL at {}",
            schema.name,
            options.get_host()
        )
    })
}
