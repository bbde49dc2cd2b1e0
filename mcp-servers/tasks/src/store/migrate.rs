//! Migrations, embedded in the program and applied at start. All of them run in one transaction that
//! only one process at a time can begin, so servers may start together.

use anyhow::{Context, ensure};
use sqlx::{PgPool, SqlitePool};

use crate::task::Moment;

struct Migration {
    version: i64,
    sqlite: &'static str,
    postgres: &'static str,
}

const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    sqlite: include_str!("../../migrations/sqlite/0001_tasks.sql"),
    postgres: include_str!("../../migrations/postgres/0001_tasks.sql"),
}];

const TABLE: &str = "CREATE TABLE IF NOT EXISTS tasks_migrations (
    version BIGINT NOT NULL PRIMARY KEY,
    applied_at BIGINT NOT NULL
)";
const APPLIED: &str = "SELECT COALESCE(MAX(version), 0) FROM tasks_migrations";
const RECORD: &str = "INSERT INTO tasks_migrations (version, applied_at) VALUES ($1, $2)";

macro_rules! migrate_on {
    ($name:ident, $pool:ty, $begin:literal, $lock:literal) => {
        pub(super) async fn $name(pool: &$pool) -> anyhow::Result<()> {
            let mut transaction = pool.begin_with($begin).await?;
            sqlx::raw_sql($lock).execute(&mut *transaction).await?;
            sqlx::raw_sql(TABLE).execute(&mut *transaction).await?;
            let applied: i64 = sqlx::query_scalar(APPLIED).fetch_one(&mut *transaction).await?;
            let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
            ensure!(
                applied <= newest,
                "the tasks database was written by a newer version of this program (its tables are \
                 at {applied}, known here is {newest})"
            );
            for migration in MIGRATIONS {
                if migration.version > applied {
                    sqlx::raw_sql(migration.$name)
                        .execute(&mut *transaction)
                        .await
                        .with_context(|| format!("migration {} failed", migration.version))?;
                    sqlx::query(RECORD)
                        .bind(migration.version)
                        .bind(Moment::now().0)
                        .execute(&mut *transaction)
                        .await?;
                }
            }
            transaction.commit().await?;
            Ok(())
        }
    };
}

migrate_on!(sqlite, SqlitePool, "BEGIN IMMEDIATE", "SELECT 1");
migrate_on!(postgres, PgPool, "BEGIN", "SELECT pg_advisory_xact_lock(7239418501266)");
