//! Reading connections to SQLite. Each statement runs on a thread for blocking work, with a time limit.
//!
//! The async driver wakes its thread several times for one statement; here it is once, and once back for its rows.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};

use super::sqlite::Sqlite;
use super::{EachRow, Row, Value};

const SETUP: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -16384";
/// Rows travel to the caller in groups of at most this many rows, or about this many bytes.
const GROUP: (usize, usize) = (64, 64 * 1024);
/// About how many bytes a row uses beside its text.
const ROW: usize = 256;

pub(crate) struct SqliteReaders {
    path: PathBuf,
    /// Timeout for a connection, and for a lock.
    patience: Duration,
    /// Timeout of a statement.
    limit: Duration,
    count: u32,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Sqlite>>,
}

impl SqliteReaders {
    /// Up to `count` connections to an existing file, opened on demand.
    pub(crate) fn new(path: PathBuf, count: u32, patience: Duration, limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            path,
            patience,
            limit,
            count,
            places: Arc::new(Semaphore::new(count as usize)),
            idle: Mutex::default(),
        })
    }

    /// Passes each row to `each` until it breaks.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        sql: Arc<str>,
        values: Vec<Value>,
        each: &mut EachRow<'_>,
    ) -> Result<(), sqlx::Error> {
        let place = Arc::clone(&self.places).acquire_owned();
        let place = tokio::time::timeout(self.patience, place).await;
        let place = place.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
        let (sender, mut groups) = mpsc::channel(1);
        let this = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let read = this.read(&sql, &values, &sender);
            drop(place);
            read
        });
        while let Some(group) = groups.recv().await {
            for row in group {
                if each(row)?.is_break() {
                    return Ok(());
                }
            }
        }
        match reading.await {
            Ok(read) => read,
            Err(error) => Err(sqlx::Error::Io(std::io::Error::other(error))),
        }
    }

    /// Sends the rows in groups, until the receiver is gone.
    fn read(&self, sql: &str, values: &[Value], to: &mpsc::Sender<Vec<Row>>) -> Result<(), sqlx::Error> {
        let kept = self.idle().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => Sqlite::open(&self.path, self.patience, SETUP)?,
        };
        connection.end_at(Instant::now() + self.limit)?;
        let (mut group, mut bytes) = (Vec::new(), 0);
        let read = connection.fetch(sql, values, &mut |row| {
            bytes += row.bytes() + ROW;
            group.push(row);
            if group.len() < GROUP.0 && bytes < GROUP.1 {
                return Ok(ControlFlow::Continue(()));
            }
            bytes = 0;
            Ok(match to.blocking_send(std::mem::take(&mut group)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        });
        if read.is_ok() {
            self.idle().push(connection);
        }
        if !group.is_empty() {
            // The receiver may be gone.
            let _ = to.blocking_send(group);
        }
        read
    }

    /// Closes all connections, after the statements in progress.
    pub(crate) async fn close(&self) {
        // Fails if they are closed already.
        let all = self.places.acquire_many(self.count).await;
        self.places.close();
        drop(all);
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Sqlite>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NUMBERS: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) SELECT i FROM n";

    fn readers(directory: &tempfile::TempDir, limit: Duration) -> Arc<SqliteReaders> {
        let path = directory.path().join("t.db");
        std::fs::write(&path, b"").unwrap();
        SqliteReaders::new(path, 1, Duration::from_secs(20), limit)
    }

    /// The first `most` of the numbers from 1 to `last`.
    async fn numbers(readers: &Arc<SqliteReaders>, last: i64, most: usize) -> Result<Vec<i64>, sqlx::Error> {
        let mut found = Vec::new();
        let each = &mut |row: Row| {
            found.push(row.read()?);
            Ok(match found.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        };
        readers.fetch(NUMBERS.into(), vec![Value::from(last)], each).await?;
        Ok(found)
    }

    /// With one connection, each statement gets it from the one before, wherever that one ended.
    #[tokio::test]
    async fn rows_arrive_in_order_and_a_caller_that_has_enough_frees_its_connection() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory, Duration::from_secs(20));
        assert_eq!(
            numbers(&readers, 1000, 1000).await.unwrap(),
            (1..=1000).collect::<Vec<_>>()
        );
        assert_eq!(numbers(&readers, 1_000_000_000, 3).await.unwrap(), [1, 2, 3]);
        assert_eq!(numbers(&readers, 1, 1000).await.unwrap(), [1]);
        readers.close().await;
        let closed = numbers(&readers, 1, 1).await;
        assert!(matches!(closed, Err(sqlx::Error::PoolClosed)), "{closed:?}");
    }

    #[tokio::test]
    async fn a_statement_that_takes_too_long_is_interrupted() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory, Duration::from_millis(20));
        let sql = NUMBERS.replace("SELECT i FROM n", "SELECT count(*) FROM n");
        let values = vec![Value::from(i64::MAX)];
        let read = readers
            .fetch(sql.into(), values, &mut |_| Ok(ControlFlow::Continue(())))
            .await;
        assert!(super::super::super::error::is_too_slow(&read.unwrap_err()));
        assert_eq!(numbers(&readers, 1, 1).await.unwrap(), [1]);
    }
}
