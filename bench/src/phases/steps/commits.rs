//! The commits of a database, as the database itself counts them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;

/// An idle connection reports what it did after at most ten seconds (PGSTAT_IDLE_INTERVAL of PostgreSQL 15 and later).
const REPORTED: Duration = Duration::from_secs(11);

/// Sizes in the write-ahead log of SQLite ("The Write-Ahead Log Format").
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

pub(super) enum Commits {
    /// In the write-ahead log.
    Sqlite {
        log: PathBuf,
        /// Reads since the start, so that no part of the log is written over.
        _reader: Box<rusqlite::Connection>,
        salt: Vec<u8>,
        before: usize,
    },
    /// Of all transactions, also those that only read.
    Postgres { url: String, before: u64 },
}

impl Commits {
    pub(super) fn of_sqlite(database: PathBuf) -> anyhow::Result<Self> {
        let reader = rusqlite::Connection::open(&database)?;
        reader.execute_batch("BEGIN; SELECT count(*) FROM sqlite_master;")?;
        let mut log = database.into_os_string();
        log.push("-wal");
        let log = PathBuf::from(log);
        let (salt, before) = in_log(&std::fs::read(&log)?)?;
        Ok(Self::Sqlite {
            log,
            _reader: Box::new(reader),
            salt,
            before,
        })
    }

    pub(super) async fn of_postgres(url: &str) -> anyhow::Result<Self> {
        let before = transactions(url).await?;
        let url = url.to_owned();
        Ok(Self::Postgres { url, before })
    }

    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "commits a step",
            Self::Postgres { .. } => "transactions a step, reads too",
        }
    }

    /// How many there were since the start.
    pub(super) async fn since(&self) -> anyhow::Result<u64> {
        match self {
            Self::Sqlite { log, salt, before, .. } => {
                let (now, after) = in_log(&std::fs::read(log)?)?;
                // A log that was complete in the database at the start began again, once.
                let before = if now == *salt { *before } else { 0 };
                Ok((after - before) as u64)
            }
            Self::Postgres { url, before } => Ok(transactions(url).await? - before),
        }
    }
}

/// The salt of a write-ahead log, and its commits: the frames that have the size of the database.
fn in_log(log: &[u8]) -> anyhow::Result<(Vec<u8>, usize)> {
    let Some(header) = log.get(..HEADER) else {
        return Ok((Vec::new(), 0));
    };
    let page = u32::from_be_bytes(header[8..12].try_into()?) as usize;
    ensure!(page >= 512, "not a write-ahead log");
    let salt = &header[16..24];
    let frames = log[HEADER..].chunks_exact(FRAME_HEADER + page);
    let current = frames.take_while(|frame| &frame[8..16] == salt);
    Ok((salt.to_vec(), current.filter(|frame| frame[4..8] != [0; 4]).count()))
}

/// All that PostgreSQL counts, by `psql`. Waits until every connection has reported its own.
async fn transactions(url: &str) -> anyhow::Result<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_commit_to_sqlite_is_counted_once_and_reads_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.db");
        let writer = rusqlite::Connection::open(&path).unwrap();
        writer
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); PRAGMA wal_checkpoint(TRUNCATE); ")
            .unwrap();
        writer.execute("INSERT INTO t VALUES (0)", []).unwrap();
        let commits = Commits::of_sqlite(path).unwrap();
        for x in 0..2500 {
            writer.execute("INSERT INTO t VALUES (?1)", [x]).unwrap();
        }
        writer
            .execute_batch("BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); COMMIT; SELECT * FROM t;")
            .unwrap();
        assert_eq!(commits.since().await.unwrap(), 2501);
    }
}
