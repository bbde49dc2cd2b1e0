//! Migrations, embedded in the program and applied at the start. They run in one transaction that only one process at a
//! time can begin, so servers may start together.

use anyhow::{Context, ensure};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use gavel_mcp_base::Moment;

/// The tables of one server, as a list of migrations.
#[derive(Debug)]
pub struct Schema {
    /// The server's name: the prefix of its tables, and in errors "the NAME database".
    pub name: &'static str,
    /// The number of PostgreSQL's advisory lock for migrations; each server has its own.
    pub lock: i64,
    /// The migrations, in order.
    pub migrations: &'static [Migration],
}

/// One migration, for each database.
#[derive(Debug)]
pub struct Migration {
    /// Counts from 1.
    pub version: i64,
    /// The SQL for SQLite.
    pub sqlite: &'static str,
    /// The SQL for PostgreSQL.
    pub postgres: &'static str,
}

macro_rules! migrate_on {
    ($name:ident, $pool:ty, $begin:literal, $lock:expr) => {
        pub(super) async fn $name(pool: &$pool, schema: &Schema) -> anyhow::Result<()> {
            // The name is a constant of the program; no caller's text becomes part of a statement.
            let Schema { name, migrations, .. } = schema;
            let lock: fn(i64) -> String = $lock;
            let table = format!(
                "CREATE TABLE IF NOT EXISTS {name}_migrations (
                    version BIGINT NOT NULL PRIMARY KEY,
                    applied_at BIGINT NOT NULL
                )"
            );
            let applied = format!("SELECT COALESCE(MAX(version), 0) FROM {name}_migrations");
            let record = format!("INSERT INTO {name}_migrations (version, applied_at) VALUES ($1, $2)");
            let mut transaction = pool.begin_with($begin).await?;
            sqlx::raw_sql(AssertSqlSafe(lock(schema.lock)))
                .execute(&mut *transaction)
                .await?;
            sqlx::raw_sql(AssertSqlSafe(table))
                .execute(&mut *transaction)
                .await?;
            let applied: i64 = sqlx::query_scalar(AssertSqlSafe(applied))
                .fetch_one(&mut *transaction)
                .await?;
            let newest = migrations.last().map_or(0, |migration| migration.version);
            ensure!(
                applied <= newest,
                "the {name} database was written by a newer version of this program (its tables are \
                 at version {applied}; this program knows {newest})"
            );
            for migration in *migrations {
                if migration.version > applied {
                    sqlx::raw_sql(migration.$name)
                        .execute(&mut *transaction)
                        .await
                        .with_context(|| format!("migration {} failed", migration.version))?;
                    sqlx::query(AssertSqlSafe(record.clone()))
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

migrate_on!(sqlite, SqlitePool, "BEGIN IMMEDIATE", |_| "SELECT 1".to_owned());
migrate_on!(postgres, PgPool, "BEGIN", |lock| format!(
    "SELECT pg_advisory_xact_lock({lock})"
));
