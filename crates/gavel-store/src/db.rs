//! One connection, to either database: the few operations that the store needs. Writers to SQLite use their own thread
//! (`sqlite`), and so do commands that only read the schema. A server's reads of SQLite use threads for blocking work.
//! PostgreSQL uses the async driver.
//!
//! SQL texts are the same for both databases, with `$1` or `?` for the parameters, and what differs as
//! [`Dialect::expand`] says.

pub(super) mod row;
pub(super) mod sqlite;

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use futures_util::TryStreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use uuid::Uuid;

pub(super) use self::row::Row;
use self::sqlite::{Sqlite, SqliteReaders};
use crate::domain::ids::{
    ActionId, ApprovalId, ConversationId, DecisionId, ExportId, GrantId, InstanceId, PlanningSessionId, ProjectId,
    RunId, TenantId, ThreadId, UserId,
};

/// The database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// A statement for this database: [`Dialect::text`], and PostgreSQL's parameters are numbered. It must not contain
    /// quoted question marks.
    pub(super) fn expand(self, text: &str) -> String {
        self.numbered(&self.text(text))
    }

    /// A text for this database, with these words: `@now` is its clock, `@utc(column)` that time as RFC 3339, and `@in($1)`
    /// compares with each text of a list ([`Value::list`]). `@postgres(…)` is only for PostgreSQL. SQLite allows values of any
    /// type in any column: of another one, `@text(column)` is a byte that no text contains, and `@whole(column)` the lowest
    /// number.
    pub(super) fn text(self, text: &str) -> String {
        let mut pieces = text.split('@');
        let mut expanded = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let end = piece.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(piece.len());
            let (word, rest) = piece.split_at(end);
            let argument = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            let (of, rest) = argument.unwrap_or(("", rest));
            expanded += &self.word(word, of);
            expanded += rest;
        }
        expanded
    }

    fn word(self, word: &str, of: &str) -> String {
        match (word, self) {
            ("now", _) => self.now().to_owned(),
            ("in", Self::Sqlite) => format!("IN (SELECT value FROM json_each({of}))"),
            ("in", Self::Postgres) => {
                format!("= ANY (ARRAY(SELECT jsonb_array_elements_text(CAST({of} AS JSONB))))")
            }
            ("utc", Self::Sqlite) => format!(
                "strftime('%Y-%m-%dT%H:%M:%S', {of} / 1000000, 'unixepoch') || printf('.%06dZ', {of} % 1000000)"
            ),
            ("utc", Self::Postgres) => format!(
                "to_char(to_timestamp({of} / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') \
                 || '.' || lpad(({of} % 1000000)::text, 6, '0') || 'Z'"
            ),
            ("text", Self::Sqlite) => {
                format!("CASE typeof({of}) WHEN 'null' THEN NULL WHEN 'text' THEN {of} ELSE x'FF' END")
            }
            ("whole", Self::Sqlite) => {
                let lowest = i64::MIN + 1;
                format!("CASE typeof({of}) WHEN 'integer' THEN {of} ELSE {lowest} END")
            }
            ("postgres", Self::Sqlite) => String::new(),
            ("text" | "whole" | "postgres", Self::Postgres) => of.to_owned(),
            _ => unreachable!("what is @{word}?"),
        }
    }

    /// SQLite looks for a numbered parameter by a linear search, so long texts have `?`.
    fn numbered(self, text: &str) -> String {
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

/// A statement's text; cheap to clone.
#[derive(Clone)]
pub(super) enum Sql {
    /// For both databases, and expanded once for each.
    Fixed(&'static str),
    /// Built for one database.
    Built(Arc<str>),
}

/// Fixed texts as they are expanded, by address and length, which identify a text that is never freed.
type Expanded = HashMap<(Dialect, usize, usize), Arc<str>>;
static EXPANDED: LazyLock<RwLock<Expanded>> = LazyLock::new(RwLock::default);

impl Sql {
    fn text(self, dialect: Dialect) -> Arc<str> {
        let fixed = match self {
            Self::Fixed(fixed) => fixed,
            Self::Built(text) => return text,
        };
        let key = (dialect, fixed.as_ptr() as usize, fixed.len());
        let known = EXPANDED
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned();
        known.unwrap_or_else(|| {
            let text: Arc<str> = dialect.expand(fixed).into();
            let mut all = EXPANDED.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(key).or_insert(text))
        })
    }
}

impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        Self::Fixed(text)
    }
}

impl From<String> for Sql {
    fn from(text: String) -> Self {
        Self::Built(text.into())
    }
}

impl From<&Self> for Sql {
    fn from(sql: &Self) -> Self {
        sql.clone()
    }
}

/// A text that is made of others once, and then is fixed.
macro_rules! sql {
    ($($text:tt)*) => {{
        static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| format!($($text)*));
        TEXT.as_str()
    }};
}
pub(super) use sql;

/// The parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::db::Value::from($value)),*]
    };
}
pub(super) use values;

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

    /// As JSON text.
    pub(super) fn json(value: &(impl Serialize + ?Sized)) -> Self {
        let json = serde_json::to_string(value);
        Self::text(&json.unwrap_or_else(|error| unreachable!("gavel's values print as JSON: {error}")))
    }

    /// Texts to compare with, for `@in`.
    pub(super) fn list(texts: impl IntoIterator<Item = impl Display>) -> Self {
        Self::json(&texts.into_iter().map(|text| text.to_string()).collect::<Vec<_>>())
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

/// In microseconds. The longest leaves room for a time that it is added to.
impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 2).into()
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

macro_rules! stored_as_text {
    ($($type:ty: $text:expr;)+) => {
        $(impl IsText for $type {}

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                let text: fn($type) -> Value = $text;
                text(value)
            }
        })+
    };
}

stored_as_text! {
    &str: Value::text;
    &String: |text| Value::text(text);
    String: |text| Value::text(&text);
    &Arc<str>: Value::shared;
    &RawValue: |json| Value::text(json.get());
    &TenantId: |id| Value::text(id.as_str());
    &UserId: |id| Value::text(id.as_str());
    &ConversationId: |id| Value::text(id.as_str());
    &ProjectId: |id| Value::text(id.as_str());
}

macro_rules! ids_as_text {
    ($($id:ty),+) => {
        stored_as_text! { $($id: |id| Value::Text(Some(id.to_string().into()));)+ }
    };
}

ids_as_text!(
    ActionId,
    ApprovalId,
    DecisionId,
    ExportId,
    GrantId,
    InstanceId,
    PlanningSessionId,
    RunId,
    ThreadId,
    Uuid
);

/// The text as both databases can store it; `None` if it needs no change.
pub(super) fn storable(text: &str) -> Option<String> {
    text.as_bytes().contains(&0).then(|| text.replace('\0', "\u{fffd}"))
}

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
    use super::{Arc, AssertSqlSafe, EachRow, PgConnection, Row, TryStreamExt, Value};

    type Query = sqlx::query::Query<'static, sqlx::Postgres, <sqlx::Postgres as sqlx::Database>::Arguments>;

    pub(super) fn query(sql: Arc<str>, values: Vec<Value>) -> Query {
        let mut query = sqlx::query::<sqlx::Postgres>(AssertSqlSafe(sql));
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
        sql: Arc<str>,
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
    pub(super) async fn execute(&mut self, sql: impl Into<Sql> + Send, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let text = sql.into().text(self.dialect());
        match self {
            Self::Sqlite(connection) => connection.execute(&text, &values),
            Self::Postgres(connection) => {
                let done = postgres::query(text, values).execute(connection).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// Runs any number of statements without parameters, as they are.
    pub(super) async fn script(&mut self, sql: impl Into<Arc<str>> + Send) -> Result<(), sqlx::Error> {
        let text = sql.into();
        match self {
            Self::Sqlite(connection) => connection.script(&text),
            Self::Postgres(connection) => sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await.map(drop),
        }
    }

    /// Passes each row to `each` until it breaks.
    pub(super) async fn fetch(
        &mut self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
        each: &mut EachRow<'_>,
    ) -> Result<(), sqlx::Error> {
        let text = sql.into().text(self.dialect());
        match self {
            Self::Sqlite(connection) => connection.fetch(&text, &values, each),
            Self::Postgres(connection) => postgres::fetch(connection, text, values, each).await,
        }
    }

    /// The first row.
    pub(super) async fn one<T: DeserializeOwned>(
        &mut self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
    ) -> Result<Option<T>, sqlx::Error> {
        self.first(sql, values).await?.map(Row::read).transpose()
    }

    /// Every row.
    pub(super) async fn all<T: DeserializeOwned + Send>(
        &mut self,
        sql: impl Into<Sql> + Send,
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

    /// Whether there is a row.
    pub(super) async fn exists(&mut self, sql: impl Into<Sql> + Send, values: Vec<Value>) -> Result<bool, sqlx::Error> {
        Ok(self.first(sql, values).await?.is_some())
    }

    /// The first row.
    pub(super) async fn first(
        &mut self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
    ) -> Result<Option<Row>, sqlx::Error> {
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
    pub(super) async fn fetch(&self, sql: Sql, values: Vec<Value>, each: &mut EachRow<'_>) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(readers) => readers.fetch(sql.text(Dialect::Sqlite), values, each).await,
            Self::Postgres(pool) => {
                let mut connection = pool.acquire().await?;
                postgres::fetch(&mut connection, sql.text(Dialect::Postgres), values, each).await
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

/// The reading steps of SQLite's plan.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) async fn explain(conn: &mut Conn, sql: &str, values: Vec<Value>) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Step {
        detail: String,
    }
    let steps: Vec<Step> = conn.all(format!("EXPLAIN QUERY PLAN {sql}"), values).await.unwrap();
    steps.into_iter().map(|step| step.detail).collect()
}

/// Every fixed text that was used so far.
#[cfg(test)]
pub(super) fn used(dialect: Dialect) -> Vec<Arc<str>> {
    let all = EXPANDED.read().unwrap_or_else(PoisonError::into_inner);
    all.iter()
        .filter(|((of, ..), _)| *of == dialect)
        .map(|(_, text)| Arc::clone(text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_the_databases_is_expanded() {
        let text = "SELECT id FROM t WHERE at <= @now AND id @in($1) ORDER BY id @postgres(FOR UPDATE)";
        assert_eq!(
            Dialect::Sqlite.expand(text),
            "SELECT id FROM t WHERE at <= CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT) \
             AND id IN (SELECT value FROM json_each($1)) ORDER BY id "
        );
        assert!(
            Dialect::Postgres.expand(text).ends_with(
                "id = ANY (ARRAY(SELECT jsonb_array_elements_text(CAST($1 AS JSONB)))) ORDER BY id FOR UPDATE"
            )
        );
        assert_eq!(Dialect::Postgres.expand("VALUES (?, @now, ?)").matches('$').count(), 2);
    }

    #[test]
    fn a_fixed_text_is_expanded_once_for_each_database() {
        let expanded = |dialect| Sql::Fixed("SELECT @now").text(dialect);
        assert!(Arc::ptr_eq(&expanded(Dialect::Sqlite), &expanded(Dialect::Sqlite)));
        assert_ne!(expanded(Dialect::Sqlite), expanded(Dialect::Postgres));
    }
}
