//! The transactions that PostgreSQL itself counts in a database.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;

/// An idle connection reports what it did after at most ten seconds (PGSTAT_IDLE_INTERVAL of PostgreSQL 15 and later).
const REPORTED: Duration = Duration::from_secs(11);

/// All that have been committed, also those that only read, by `psql`. Waits until every connection has reported its own.
pub(super) async fn committed(url: &str) -> anyhow::Result<u64> {
    tokio::time::sleep(REPORTED).await;
    let query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let asked = Command::new("psql")
        .args([url, "--no-psqlrc", "--tuples-only", "--no-align", "--command", query])
        .output()
        .await
        .context("psql cannot be started")?;
    let errors = String::from_utf8_lossy(&asked.stderr);
    ensure!(asked.status.success(), "psql: {errors}");
    Ok(String::from_utf8_lossy(&asked.stdout).trim().parse()?)
}
