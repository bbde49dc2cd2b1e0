//! One connection, to either database: the few operations that the store needs. Writers to SQLite use their own thread
//! (`sqlite`), and so do commands that only read the schema. A server's reads of SQLite use threads for blocking work
//! (`sqlite_readers`). PostgreSQL uses the async driver.
//!
//! SQL texts are the same for both databases. Static texts number their parameters (`$1`), which both support.
//! Generated texts use `?` and are numbered for PostgreSQL by [`Dialect::placeholders`], because SQLite resolves a
//! numbered parameter by a linear search.

pub(super) mod row;
pub(super) mod sqlite;
pub(super) mod sqlite_readers;

use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::TryStreamExt;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

pub(super) use self::row::Row;
use self::sqlite::Sqlite;
use self::sqlite_readers::SqliteReaders;
use crate::domain::ids::{ActionId, ApprovalId, DecisionId, GrantId, InstanceId, PlanningSessionId, RunId, ThreadId};

/// The database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The database's own clock, in microseconds since the epoch; constant within a statement.
    pub(super) fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)",
            Self::Postgres => "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS BIGINT)",
        }
    }

    /// How a writing transaction begins: SQLite takes the write lock at once, so that the transaction cannot fail on it
    /// later.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// Numbers the `?` of a text; the text must not contain quoted question marks.
    pub(super) fn placeholders(self, text: &str) -> String {
        if self == Self::Sqlite {
            return text.to_owned();
        }
        let mut numbered = String::with_capacity(text.len() + 64);
        let mut pieces = text.split('?');
        numbered.push_str(pieces.next().unwrap_or_default());
        for (n, piece) in pieces.enumerate() {
            numbered.push('$');
            numbered.push_str(&(n + 1).to_string());
            numbered.push_str(piece);
        }
        numbered
    }
}

/// A parameter. NULLs are typed, since PostgreSQL requires it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(Option<Arc<str>>),
    Int(Option<i64>),
    Bool(bool),
}

impl Value {
    /// Text that both databases can store: PostgreSQL rejects U+0000, so it becomes U+FFFD on both.
    pub(super) fn text(text: &str) -> Self {
        Self::Text(Some(storable(text).map_or_else(|| Arc::from(text), Arc::from)))
    }

    /// As [`Value::text`], but without a copy if nothing changes.
    pub(super) fn shared(text: &Arc<str>) -> Self {
        Self::Text(Some(storable(text).map_or_else(|| Arc::clone(text), Arc::from)))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<&Arc<str>> for Value {
    fn from(text: &Arc<str>) -> Self {
        Self::shared(text)
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Int(Some(int))
    }
}

impl From<Option<i64>> for Value {
    fn from(int: Option<i64>) -> Self {
        Self::Int(int)
    }
}

impl From<u32> for Value {
    fn from(int: u32) -> Self {
        i64::from(int).into()
    }
}

impl From<u64> for Value {
    fn from(int: u64) -> Self {
        i64::try_from(int).unwrap_or(i64::MAX).into()
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

/// NULL if there is no text.
impl<T> From<Option<T>> for Value
where
    T: IsText,
    Value: From<T>,
{
    fn from(text: Option<T>) -> Self {
        text.map_or(Self::Text(None), Self::from)
    }
}

/// What is stored as text.
pub(super) trait IsText {}

impl IsText for &str {}
impl IsText for &Arc<str> {}

macro_rules! ids_as_text {
    ($($id:ty),+) => {
        $(impl IsText for $id {}

        impl From<$id> for Value {
            fn from(id: $id) -> Self {
                Self::Text(Some(id.to_string().into()))
            }
        })+
    };
}

ids_as_text!(
    ActionId,
    ApprovalId,
    DecisionId,
    GrantId,
    InstanceId,
    PlanningSessionId,
    RunId,
    ThreadId
);

/// The text as both databases can store it; `None` if it needs no change.
pub(super) fn storable(text: &str) -> Option<String> {
    text.as_bytes().contains(&0).then(|| text.replace('\0', "\u{fffd}"))
}

/// A statement's text; cheap to clone.
pub(super) type Sql = Arc<str>;

/// Receives rows one by one until it breaks.
pub(super) type EachRow<'a> = dyn FnMut(Row) -> Result<ControlFlow<()>, sqlx::Error> + Send + 'a;

/// A separate connection, for a writer or for reading the schema. SQLite blocks the calling thread until it is done.
pub(super) enum Conn {
    Sqlite(Sqlite),
    Postgres(PgConnection),
}

/// Connections for reading.
#[derive(Clone)]
pub(super) enum Readers {
    /// With their own timeout.
    Sqlite(Arc<SqliteReaders>),
    /// The pool's connections have their own timeout.
    Postgres(PgPool),
}

mod postgres {
    use super::{Arc, AssertSqlSafe, EachRow, PgConnection, Row, Sql, TryStreamExt, Value};

    type Query = sqlx::query::Query<'static, sqlx::Postgres, <sqlx::Postgres as sqlx::Database>::Arguments>;

    pub(super) fn query(sql: &Sql, values: Vec<Value>) -> Query {
        let mut query = sqlx::query::<sqlx::Postgres>(AssertSqlSafe(Arc::clone(sql)));
        for value in values {
            query = match value {
                Value::Text(text) => query.bind(text),
                Value::Int(int) => query.bind(int),
                Value::Bool(bool) => query.bind(bool),
            };
        }
        query
    }

    pub(super) async fn fetch(
        connection: &mut PgConnection,
        sql: &Sql,
        values: Vec<Value>,
        each: &mut EachRow<'_>,
    ) -> Result<(), sqlx::Error> {
        let mut rows = query(sql, values).fetch(connection);
        let mut names = None;
        while let Some(row) = rows.try_next().await? {
            if each(Row::from_postgres(&row, &mut names)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Conn {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs one statement; returns the number of changed rows.
    pub(super) async fn execute(&mut self, sql: &Sql, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(connection) => connection.execute(sql, &values),
            Self::Postgres(connection) => {
                let done = postgres::query(sql, values).execute(connection).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// Runs any number of statements without parameters.
    pub(super) async fn script(&mut self, sql: Sql) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => connection.script(&sql),
            Self::Postgres(connection) => sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop),
        }
    }

    /// Passes each row to `each` until it breaks.
    pub(super) async fn fetch(
        &mut self,
        sql: &Sql,
        values: Vec<Value>,
        each: &mut EachRow<'_>,
    ) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => connection.fetch(sql, &values, each),
            Self::Postgres(connection) => postgres::fetch(connection, sql, values, each).await,
        }
    }

    /// The first row.
    pub(super) async fn one<T: DeserializeOwned>(
        &mut self,
        sql: &Sql,
        values: Vec<Value>,
    ) -> Result<Option<T>, sqlx::Error> {
        self.first(sql, values).await?.map(Row::read).transpose()
    }

    /// Every row.
    pub(super) async fn all<T: DeserializeOwned + Send>(
        &mut self,
        sql: &Sql,
        values: Vec<Value>,
    ) -> Result<Vec<T>, sqlx::Error> {
        let mut all = Vec::new();
        self.fetch(sql, values, &mut |row| {
            all.push(row.read()?);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(all)
    }

    /// The first row.
    pub(super) async fn first(&mut self, sql: &Sql, values: Vec<Value>) -> Result<Option<Row>, sqlx::Error> {
        let mut first = None;
        self.fetch(sql, values, &mut |row| {
            first = Some(row);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        Ok(first)
    }

    /// Closes the connection. An error is only logged: the connection is dropped anyway.
    pub(super) async fn close(self) {
        let closed = match self {
            Self::Sqlite(connection) => connection.close(),
            Self::Postgres(connection) => connection.close().await,
        };
        if let Err(error) = closed {
            tracing::debug!(%error, "a database connection did not close cleanly");
        }
    }
}

impl Readers {
    /// Passes each row to `each` until it breaks.
    pub(super) async fn fetch(&self, sql: &Sql, values: Vec<Value>, each: &mut EachRow<'_>) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(readers) => readers.fetch(sql, values, each).await,
            Self::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                postgres::fetch(&mut connection, sql, values, each).await
            }
        }
    }

    /// Closes all connections.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(readers) => readers.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
