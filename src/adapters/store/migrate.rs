//! Migrations: compiled in, applied in order, and identified by their checksums in the table `gavel_schema`.
//!
//! All pending migrations are applied in one transaction under a lock, so two processes that start at once apply each
//! once. A changed migration is an error, and so is a database that is newer than the binary.

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::connect::Target;
use super::db::{Conn, Dialect, Value};
use super::error::{StoreError, describe, is_locked};

/// One migration, with the same number and name in both dialects.
struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migration {
    ($version:literal, $name:literal, $file:literal) => {
        Migration {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("../../../migrations/sqlite/", $file, ".sql")),
            postgres: include_str!(concat!("../../../migrations/postgres/", $file, ".sql")),
        }
    };
}

/// All migrations, in order. New ones are added at the end.
const MIGRATIONS: &[Migration] = &[
    migration!(1, "decisions", "0001_decisions"),
    migration!(2, "quota", "0002_quota"),
    migration!(3, "lists", "0003_lists"),
    migration!(4, "runs", "0004_runs"),
    migration!(5, "actions", "0005_actions"),
    migration!(6, "audit", "0006_audit"),
    migration!(7, "console", "0007_console"),
    migration!(8, "record", "0008_record"),
    migration!(9, "takes", "0009_takes"),
    migration!(10, "actions", "0010_actions"),
    migration!(11, "resume", "0011_resume"),
    migration!(12, "events", "0012_events"),
    migration!(13, "planning", "0013_planning"),
    migration!(14, "execution", "0014_execution"),
    migration!(15, "url", "0015_url"),
    migration!(16, "worked", "0016_worked"),
    migration!(17, "models", "0017_models"),
];

/// How long `gavel migrate` waits for another process that is migrating.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl Migration {
    fn text(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::Postgres => self.postgres,
        }
    }

    /// Hex SHA-256 of the text; line endings are ignored.
    fn checksum(&self, dialect: Dialect) -> String {
        hex::encode(Sha256::digest(self.text(dialect).replace("\r\n", "\n").as_bytes()))
    }
}

/// The migrations of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Number and name of the applied migrations.
    pub applied: Vec<(i64, String)>,
    /// Number and name of the migrations that this binary would apply.
    pub pending: Vec<(i64, &'static str)>,
}

/// A migration that was applied to a database.
struct Applied {
    version: i64,
    name: String,
    checksum: String,
}

/// Applies pending migrations; waits at most `patience` for another process that is migrating. With nothing pending it
/// takes no lock, so it works on a locked database too.
pub(super) async fn migrate(conn: &mut Conn, patience: Duration) -> Result<MigrationStatus, StoreError> {
    let dialect = conn.dialect();
    match status(conn).await {
        Ok(there) if there.pending.is_empty() && has_its_journal(conn).await? => return Ok(there),
        // Another process may be creating the file at this moment.
        Ok(_) | Err(StoreError::Unavailable(_)) => {}
        Err(error) => return Err(error),
    }
    lock(conn, patience).await?;
    match apply(conn, dialect).await {
        Ok(status) => {
            run(conn, "COMMIT").await.map_err(StoreError::from)?;
            Ok(status)
        }
        Err(error) => {
            if let Err(rollback) = run(conn, "ROLLBACK").await {
                tracing::debug!(error = %describe(&rollback), "could not roll back a failed migration");
            }
            Err(error)
        }
    }
}

/// Whether a SQLite file is in WAL mode. A copy made by `VACUUM INTO` is not.
pub(super) async fn has_its_journal(conn: &mut Conn) -> Result<bool, StoreError> {
    if conn.dialect() == Dialect::Postgres {
        return Ok(true);
    }
    let mode = conn.first(&"PRAGMA journal_mode".into(), vec![]).await?;
    Ok(mode.map(|mode| mode.text(0)).transpose()?.as_deref() == Some("wal"))
}

/// Reads the status without changes. A database without `gavel_schema` has no applied migrations.
pub(super) async fn status(conn: &mut Conn) -> Result<MigrationStatus, StoreError> {
    let dialect = conn.dialect();
    let exists = match dialect {
        Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'gavel_schema'",
        Dialect::Postgres => {
            "SELECT table_name::text FROM information_schema.tables \
             WHERE table_schema = current_schema() AND table_name = 'gavel_schema'"
        }
    };
    let applied = match conn.first(&exists.into(), vec![]).await.map_err(StoreError::from)? {
        Some(_) => applied(conn).await?,
        None => Vec::new(),
    };
    check(&applied, dialect)?;
    Ok(summary(applied))
}

/// Begins the exclusive transaction.
pub(super) async fn lock(conn: &mut Conn, patience: Duration) -> Result<(), StoreError> {
    match conn.dialect() {
        Dialect::Sqlite => {
            // Neither WAL mode nor the write lock waits reliably for a process that does the same.
            let start = Instant::now();
            loop {
                let tried = match run(conn, "PRAGMA journal_mode = WAL").await {
                    Ok(()) => run(conn, "BEGIN IMMEDIATE").await,
                    Err(error) => Err(error),
                };
                match tried {
                    Ok(()) => return Ok(()),
                    Err(error) if is_locked(&error) && start.elapsed() < patience => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Dialect::Postgres => {
            let wait = patience.as_millis();
            let begin = format!("BEGIN; SET LOCAL lock_timeout = '{wait}ms'; SET LOCAL statement_timeout = 0");
            conn.script(begin.into()).await.map_err(StoreError::from)?;
            // A lock number that only gavel uses: "gavel" in ASCII.
            run(conn, "SELECT pg_advisory_xact_lock(444016780652)")
                .await
                .map_err(StoreError::from)
        }
    }
}

async fn apply(conn: &mut Conn, dialect: Dialect) -> Result<MigrationStatus, StoreError> {
    run(
        conn,
        "CREATE TABLE IF NOT EXISTS gavel_schema (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, \
         checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)",
    )
    .await
    .map_err(StoreError::from)?;
    let mut done = applied(conn).await?;
    check(&done, dialect)?;
    let insert = format!(
        "INSERT INTO gavel_schema (version, name, checksum, applied_at) VALUES ($1, $2, $3, {})",
        dialect.now()
    );
    let before = done.len();
    for migration in &MIGRATIONS[before..] {
        let failed = |error: sqlx::Error| StoreError::Failed {
            version: migration.version,
            name: migration.name,
            cause: describe(&error).into(),
        };
        conn.script(migration.text(dialect).into()).await.map_err(failed)?;
        let values = vec![
            Value::Int(Some(migration.version)),
            Value::text(migration.name),
            Value::text(&migration.checksum(dialect)),
        ];
        conn.execute(&insert.as_str().into(), values).await.map_err(failed)?;
        tracing::debug!(
            version = migration.version,
            name = migration.name,
            "applied a migration"
        );
        done.push(Applied {
            version: migration.version,
            name: migration.name.to_owned(),
            checksum: migration.checksum(dialect),
        });
    }
    if done.len() > before {
        tracing::info!(from = before, to = done.len(), "the database was migrated");
    }
    Ok(summary(done))
}

async fn applied(conn: &mut Conn) -> Result<Vec<Applied>, StoreError> {
    let mut rows = Vec::new();
    let sql = "SELECT version, name, checksum FROM gavel_schema ORDER BY version";
    conn.fetch(&sql.into(), vec![], &mut |row| {
        rows.push(Applied {
            version: row.int(0)?,
            name: row.text(1)?,
            checksum: row.text(2)?,
        });
        Ok(ControlFlow::Continue(()))
    })
    .await
    .map_err(StoreError::from)?;
    Ok(rows)
}

/// Checks that the applied migrations are an unchanged prefix of this binary's.
fn check(applied: &[Applied], dialect: Dialect) -> Result<(), StoreError> {
    let known = MIGRATIONS.last().map_or(0, |last| last.version);
    if let Some(newest) = applied.last().filter(|newest| newest.version > known) {
        return Err(StoreError::Newer {
            found: newest.version,
            known,
        });
    }
    for (applied, ours) in applied.iter().zip(MIGRATIONS) {
        if applied.version != ours.version {
            return Err(StoreError::Gap(ours.version));
        }
        let checksum = ours.checksum(dialect);
        if applied.checksum != checksum {
            return Err(StoreError::Changed {
                version: ours.version,
                name: ours.name,
                applied: applied.checksum.clone(),
                ours: checksum,
            });
        }
    }
    Ok(())
}

fn summary(applied: Vec<Applied>) -> MigrationStatus {
    MigrationStatus {
        pending: MIGRATIONS[applied.len()..]
            .iter()
            .map(|migration| (migration.version, migration.name))
            .collect(),
        applied: applied.into_iter().map(|row| (row.version, row.name)).collect(),
    }
}

/// Connects and reads the status: `gavel migrate --status`. Creates no file.
pub(super) async fn status_target(target: &Target) -> Result<MigrationStatus, StoreError> {
    if let Some(path) = target.missing() {
        can_be_created(path).map_err(|error| {
            StoreError::Unavailable(format!("{} cannot be created: {error}", path.display()).into())
        })?;
        return Ok(summary(Vec::new()));
    }
    let mut conn = target.reader().await.map_err(StoreError::from)?;
    let result = status(&mut conn).await;
    conn.close().await;
    result
}

/// Tries it with another file, in the first directory that exists: gavel also creates missing directories.
fn can_be_created(path: &Path) -> io::Result<()> {
    let directory = path.ancestors().skip(1).find(|directory| directory.exists());
    let directory = directory.unwrap_or(Path::new("."));
    let tried = directory.join(format!(".gavel-{}", std::process::id()));
    File::create_new(&tried)?;
    fs::remove_file(&tried)
}

async fn run(conn: &mut Conn, sql: &str) -> Result<(), sqlx::Error> {
    conn.execute(&sql.into(), vec![]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_a_gap() {
        for (place, migration) in (1_i64..).zip(MIGRATIONS) {
            assert_eq!(migration.version, place, "{}", migration.name);
        }
    }

    #[test]
    fn line_ends_do_not_change_a_checksum() {
        let unix = Migration {
            version: 1,
            name: "x",
            sqlite: "a\nb\n",
            postgres: "",
        };
        let dos = Migration {
            version: 1,
            name: "x",
            sqlite: "a\r\nb\r\n",
            postgres: "",
        };
        assert_eq!(unix.checksum(Dialect::Sqlite), dos.checksum(Dialect::Sqlite));
    }
}
