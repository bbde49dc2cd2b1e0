//! SQLite on the calling thread.
//!
//! The async driver hands each statement to a separate thread and back. Those two wake-ups cost more than a small
//! transaction, and the SQLite writer already has its own thread (`mod`).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::types::{FromSqlError, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OpenFlags, ToSql};
use tokio::sync::{Semaphore, mpsc};

use super::row::{Cell, Names};
use super::{EachRow, Row, Value};

/// Holds every statement of a writer, in each of its sizes.
const STATEMENTS: usize = 128;

/// SQLite checks the clock after this many opcodes of a read, some thousand times a second.
const OPCODES_BETWEEN_LOOKS: i32 = 10_000;

/// A connection.
pub(crate) struct Sqlite {
    connection: Box<Connection>,
    path: PathBuf,
    file: Option<FileId>,
    /// Whether commits wait for the disk.
    survives_power_loss: bool,
}

impl Sqlite {
    /// Opens an existing file. For a writer, `setup` must leave `synchronous` at NORMAL.
    pub(crate) fn open(path: &Path, lock_wait: Duration, setup: &str) -> Result<Self, sqlx::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failure)?;
        connection.busy_timeout(lock_wait).map_err(failure)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.execute_batch(setup).map_err(failure)?;
        Ok(Self {
            file: file_id(path),
            path: path.to_owned(),
            connection: Box::new(connection),
            survives_power_loss: false,
        })
    }

    /// Sets whether the next commits survive a power loss, or only the death of the process. Must not be called within
    /// a transaction.
    pub(crate) fn survive_power_loss(&mut self, yes: bool) -> Result<(), sqlx::Error> {
        if self.survives_power_loss != yes {
            // Not a cached statement: SQLite applies this PRAGMA when it is prepared, not when it runs.
            let level = if yes { "FULL" } else { "NORMAL" };
            self.connection
                .pragma_update(None, "synchronous", level)
                .map_err(failure)?;
            self.survives_power_loss = yes;
        }
        Ok(())
    }

    /// Fails when the opened file was removed or replaced. SQLite would continue to write to a file that has no path
    /// any more.
    pub(crate) fn still_there(&self) -> Result<(), sqlx::Error> {
        if self.file == file_id(&self.path) {
            return Ok(());
        }
        Err(sqlx::Error::Io(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!(
                "{} was removed or replaced while it was in use; put it back, or restart to use the file that is there \
                 now",
                self.path.display()
            ),
        )))
    }

    /// Interrupts statements that run after this instant.
    pub(crate) fn end_at(&self, end: Instant) -> Result<(), sqlx::Error> {
        let late = move || Instant::now() >= end;
        self.connection
            .progress_handler(OPCODES_BETWEEN_LOOKS, Some(late))
            .map_err(failure)
    }

    /// Whether a transaction is open.
    pub(crate) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Runs one statement and returns the number of changed rows.
    pub(crate) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, sqlx::Error> {
        let mut statement = self.bound(sql, values)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(failure)?.is_some() {}
        Ok(self.connection.changes())
    }

    /// Runs any number of statements without parameters.
    pub(crate) fn script(&self, sql: &str) -> Result<(), sqlx::Error> {
        self.connection.execute_batch(sql).map_err(failure)
    }

    /// Passes each row to `each` until it breaks.
    pub(crate) fn fetch(&self, sql: &str, values: &[Value], each: &mut EachRow<'_>) -> Result<(), sqlx::Error> {
        let mut statement = self.bound(sql, values)?;
        let names: Names = statement.column_names().into_iter().map(Box::from).collect();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(failure)? {
            let cells = (0..names.len()).map(|column| cell(row.get_ref(column)?));
            let cells = cells.collect::<Result<_, _>>().map_err(failure)?;
            if each(Row::new(Names::clone(&names), cells))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Closes the file. The last connection to close moves the log into it.
    pub(crate) fn close(self) -> Result<(), sqlx::Error> {
        (*self.connection).close().map_err(|(_, error)| failure(error))
    }

    /// Binds values: `$3` is the third value wherever it appears; each `?` is the next one.
    fn bound(&self, sql: &str, values: &[Value]) -> Result<CachedStatement<'_>, sqlx::Error> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failure)?;
        for index in 1..=statement.parameter_count() {
            let place = match statement.parameter_name(index) {
                Some(name) => name[1..].parse().unwrap_or(0),
                None => index,
            };
            let value = place.checked_sub(1).and_then(|place| values.get(place));
            let value = value.ok_or_else(|| sqlx::Error::Encode(format!("there is no value for ${place}").into()))?;
            statement.raw_bind_parameter(index, value).map_err(failure)?;
        }
        Ok(statement)
    }
}

fn cell(value: ValueRef<'_>) -> rusqlite::Result<Cell> {
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(int) => Cell::Int(int),
        // What is no text was written outside gavel, which the audit must be able to show.
        ValueRef::Text(text) | ValueRef::Blob(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        // No column of gavel's has it.
        ValueRef::Real(_) => return Err(FromSqlError::InvalidType.into()),
    })
}

/// Device and inode, which identify a file regardless of its path.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn file_id(_: &Path) -> Option<FileId> {
    None
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Int(Some(int)) => ValueRef::Integer(*int),
            Self::Bool(bool) => ValueRef::Integer(i64::from(*bool)),
            Self::Text(None) | Self::Int(None) => ValueRef::Null,
        }))
    }
}

/// A SQLite error among those of the other driver; [`sqlite_error`] finds it again.
pub(crate) fn failure(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(..) | rusqlite::Error::SqlInputError { .. } => {
            sqlx::Error::AnyDriverError(error.into())
        }
        other => sqlx::Error::Decode(other.into()),
    }
}

/// The extended result code (sqlite.org/rescode.html) and the message of an error of SQLite, without the SQL text that it
/// refers to.
pub(crate) fn sqlite_error(error: &sqlx::Error) -> Option<(i32, String)> {
    let sqlx::Error::AnyDriverError(error) = error else {
        return None;
    };
    match error.downcast_ref()? {
        rusqlite::Error::SqliteFailure(cause, message) => Some((
            cause.extended_code,
            message.clone().unwrap_or_else(|| cause.to_string()),
        )),
        rusqlite::Error::SqlInputError { error, msg, .. } => Some((error.extended_code, msg.clone())),
        _ => None,
    }
}

const SETUP: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -16384";
/// Rows travel to the caller in groups of at most this many rows, or about this many bytes.
const GROUP: (usize, usize) = (64, 64 * 1024);
/// About how many bytes a row uses beside its text.
const ROW: usize = 256;

/// Reading connections. Each statement runs on a thread for blocking work, with a time limit: the async driver wakes its
/// thread several times for one statement, here it is once, and once back for its rows.
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
    use std::ops::ControlFlow;

    use super::*;

    fn open(directory: &tempfile::TempDir) -> Sqlite {
        let path = directory.path().join("t.db");
        std::fs::write(&path, b"").unwrap();
        let sqlite = Sqlite::open(&path, Duration::ZERO, "PRAGMA synchronous = NORMAL").unwrap();
        sqlite
            .script("PRAGMA journal_mode = WAL; CREATE TABLE t (a TEXT UNIQUE, b BIGINT, c BOOLEAN)")
            .unwrap();
        sqlite
    }

    fn ints(sqlite: &Sqlite, sql: &str) -> Vec<i64> {
        let mut found = Vec::new();
        sqlite
            .fetch(sql, &[], &mut |row| {
                found.push(row.read()?);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        found
    }

    /// Intents of side effects survive a power loss.
    #[test]
    fn what_a_commit_survives_can_be_changed_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut sqlite = open(&directory);
        for yes in [true, false, true, true, false, true] {
            sqlite.survive_power_loss(yes).unwrap();
            assert_eq!(ints(&sqlite, "PRAGMA synchronous"), [if yes { 2 } else { 1 }]);
        }
    }

    #[test]
    fn a_numbered_parameter_takes_its_value_in_every_place() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = open(&directory);
        let values = [Value::Bool(true), Value::text("x"), Value::from(7_i64)];
        let changed = sqlite.execute("INSERT INTO t (a, b, c) VALUES ($2, $3, $1)", &values);
        assert_eq!(changed.unwrap(), 1);
        let changed = sqlite.execute("INSERT INTO t (c, a, b) VALUES (?, ?, ?)", &values);
        assert!(sqlite_error(&changed.unwrap_err()).is_some());
        assert_eq!(ints(&sqlite, "SELECT b FROM t WHERE a = 'x' AND c"), [7]);
        let unknown = sqlite.execute("DELETE FROM t WHERE d = 1", &[]).unwrap_err();
        assert_eq!(sqlite_error(&unknown).unwrap().1, "no such column: d");
        let missing = sqlite.execute("DELETE FROM t WHERE a = $4", &values);
        assert!(matches!(missing, Err(sqlx::Error::Encode(_))), "{missing:?}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod sqlite_readers_tests {
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
