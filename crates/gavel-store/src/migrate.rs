//! Migrations: compiled in, applied in order, and identified by their checksums in the table `gavel_schema`.
//!
//! All pending migrations are applied in one transaction under a lock, so two processes that start at once apply each
//! once. A changed migration is an error, and so is a database that is newer than the binary.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::connect::Target;
use super::db::{Conn, Dialect, values};
use super::error::{StoreError, describe, is_locked};
use super::views;

/// One migration, for both databases.
#[derive(Clone)]
struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
}

/// All migrations, in order. New ones are added at the end.
const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "schema",
    sql: include_str!("../../../migrations/0001_schema.sql"),
}];

/// How long `gavel migrate` waits for another process that is migrating.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl Migration {
    /// The text for one database: without what is between `-- sqlite:` or `-- postgres:`, the other one, and `-- both:`.
    fn text(&self, dialect: Dialect) -> String {
        let mut is_ours = true;
        let mut ours = String::with_capacity(self.sql.len() + 8192);
        for line in self.sql.lines() {
            match line {
                "-- both:" => is_ours = true,
                "-- sqlite:" => is_ours = dialect == Dialect::Sqlite,
                "-- postgres:" => is_ours = dialect == Dialect::Postgres,
                line if is_ours => ours.extend([line, "\n"]),
                _ => {}
            }
        }
        match dialect {
            Dialect::Sqlite => dialect.text(&ours),
            // Texts compare by their bytes, as in SQLite.
            Dialect::Postgres => dialect.text(&ours.replace(" TEXT", " TEXT COLLATE \"C\"")),
        }
    }

    /// Hex SHA-256 of the text.
    fn checksum(&self, dialect: Dialect) -> String {
        hex::encode(Sha256::digest(self.text(dialect).as_bytes()))
    }
}

/// The migrations of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Number and name of the applied migrations.
    pub applied: Vec<(i64, String)>,
    /// Number and name of the migrations that this binary would apply.
    pub pending: Vec<(i64, &'static str)>,
    /// Whether it has the analysts' views of this binary.
    pub has_views: bool,
}

/// The first migration, which creates the tables and the triggers of the audit log.
pub(super) fn schema(dialect: Dialect) -> &'static str {
    static SQLITE: LazyLock<String> = LazyLock::new(|| MIGRATIONS[0].text(Dialect::Sqlite));
    static POSTGRES: LazyLock<String> = LazyLock::new(|| MIGRATIONS[0].text(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

/// A migration that was applied to a database.
#[derive(Deserialize)]
struct Applied {
    version: i64,
    name: String,
    checksum: String,
}

/// Applies pending migrations; waits at most `patience` for another process that is migrating. With nothing pending it
/// takes no lock, so it works on a locked database too.
pub(super) async fn migrate(conn: &mut Conn, patience: Duration) -> Result<MigrationStatus, StoreError> {
    migrate_to(conn, patience, MIGRATIONS).await
}

async fn migrate_to(conn: &mut Conn, patience: Duration, known: &[Migration]) -> Result<MigrationStatus, StoreError> {
    match compare(conn, known).await {
        Ok(there) if there.pending.is_empty() && there.has_views && has_its_journal(conn).await? => return Ok(there),
        // Another process may be creating the file at this moment.
        Ok(_) | Err(StoreError::Unavailable(_)) => {}
        Err(error) => return Err(error),
    }
    lock(conn, patience).await?;
    let applied = apply(conn, known).await;
    let mut status = ended(conn, applied).await?;
    if !status.has_views {
        // gavel works without them, and who looks at them may keep them locked.
        match views(conn, patience).await {
            Ok(()) => status.has_views = true,
            Err(error) => {
                tracing::warn!(%error, "the analysts' views are not those of this version; `gavel migrate` says more")
            }
        }
    }
    Ok(status)
}

/// Makes the analysts' views those of this version.
pub(super) async fn views(conn: &mut Conn, patience: Duration) -> Result<(), StoreError> {
    lock(conn, patience).await?;
    let replaced = views::replace(conn).await;
    ended(conn, replaced).await?;
    views::analyze(conn).await;
    Ok(())
}

/// Ends the transaction.
async fn ended<T>(conn: &mut Conn, done: Result<T, StoreError>) -> Result<T, StoreError> {
    if done.is_ok() {
        run(conn, "COMMIT").await?;
    } else if let Err(rollback) = run(conn, "ROLLBACK").await {
        tracing::debug!(error = %describe(&rollback), "could not roll back a failed migration");
    }
    done
}

/// Whether a SQLite file is in WAL mode. A copy made by `VACUUM INTO` is not.
pub(super) async fn has_its_journal(conn: &mut Conn) -> Result<bool, StoreError> {
    if conn.dialect() == Dialect::Postgres {
        return Ok(true);
    }
    let mode: Option<String> = conn.one("PRAGMA journal_mode", vec![]).await?;
    Ok(mode.as_deref() == Some("wal"))
}

/// Reads the status without changes. A database without `gavel_schema` has no applied migrations.
pub(super) async fn status(conn: &mut Conn) -> Result<MigrationStatus, StoreError> {
    compare(conn, MIGRATIONS).await
}

async fn compare(conn: &mut Conn, known: &[Migration]) -> Result<MigrationStatus, StoreError> {
    let exists = match conn.dialect() {
        Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'gavel_schema'",
        Dialect::Postgres => {
            "SELECT table_name::text FROM information_schema.tables \
             WHERE table_schema = current_schema() AND table_name = 'gavel_schema'"
        }
    };
    let applied = match conn.exists(exists, vec![]).await? {
        true => applied(conn).await?,
        false => Vec::new(),
    };
    check(&applied, known, conn.dialect())?;
    let has_views = !applied.is_empty() && views::are_current(conn).await?;
    Ok(summary(applied, known, has_views))
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
            conn.script(begin).await?;
            // A lock number that only gavel uses: "gavel" in ASCII.
            Ok(run(conn, "SELECT pg_advisory_xact_lock(444016780652)").await?)
        }
    }
}

async fn apply(conn: &mut Conn, known: &[Migration]) -> Result<MigrationStatus, StoreError> {
    let dialect = conn.dialect();
    run(
        conn,
        "CREATE TABLE IF NOT EXISTS gavel_schema (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, \
         checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)",
    )
    .await?;
    let mut done = applied(conn).await?;
    check(&done, known, dialect)?;
    let insert = "INSERT INTO gavel_schema (version, name, checksum, applied_at) VALUES ($1, $2, $3, @now)";
    let before = done.len();
    for migration in &known[before..] {
        let failed = |error: sqlx::Error| StoreError::Failed {
            version: migration.version,
            name: migration.name,
            cause: describe(&error).into(),
        };
        conn.script(migration.text(dialect)).await.map_err(failed)?;
        let values = values![migration.version, migration.name, migration.checksum(dialect)];
        conn.execute(insert, values).await.map_err(failed)?;
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
    let has_views = views::are_current(conn).await?;
    if done.len() > before {
        tracing::info!(from = before, to = done.len(), "the database was migrated");
    }
    Ok(summary(done, known, has_views))
}

async fn applied(conn: &mut Conn) -> Result<Vec<Applied>, StoreError> {
    // Row 0 is about the views.
    let sql = "SELECT version, name, checksum FROM gavel_schema WHERE version > 0 ORDER BY version";
    Ok(conn.all(sql, vec![]).await?)
}

/// Checks that the applied migrations are an unchanged prefix of the known ones.
fn check(applied: &[Applied], known: &[Migration], dialect: Dialect) -> Result<(), StoreError> {
    let last = known.last().map_or(0, |last| last.version);
    if let Some(newest) = applied.last().filter(|newest| newest.version > last) {
        return Err(StoreError::Newer {
            found: newest.version,
            known: last,
        });
    }
    for (applied, ours) in applied.iter().zip(known) {
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

fn summary(applied: Vec<Applied>, known: &[Migration], has_views: bool) -> MigrationStatus {
    MigrationStatus {
        has_views,
        pending: known[applied.len()..]
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
        return Ok(summary(Vec::new(), MIGRATIONS, false));
    }
    let mut conn = target.reader().await?;
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

async fn run(conn: &mut Conn, sql: &'static str) -> Result<(), sqlx::Error> {
    conn.execute(sql, vec![]).await.map(drop)
}

#[cfg(test)]
mod tests;
