//! The store for tasks: SQLite or PostgreSQL, with the same SQL text for both.

mod queries;
mod sql;

use gavel_mcp_base::{Answer, Moment, ToolError, UserId};
use gavel_mcp_store::{Claim, KEY_LIFE_MICROS, Location, Migration, Pools, Pruning, Schema, on_readers, on_writer};
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};
use tokio_util::sync::CancellationToken;

use crate::error::Code;
use crate::task::{Change, Filter, Place, Status, Task};
use crate::text;

/// How many candidates an `ambiguous_title` error lists.
const MAX_CANDIDATES: usize = 10;

/// The most tasks of one user, including done ones.
const MAX_TASKS: i64 = 10_000;

/// Why a change has no answer.
#[derive(Debug)]
pub(crate) enum ChangeFault {
    /// Nothing was changed.
    NotDone(sqlx::Error),
    /// The commit was begun and its outcome is unknown.
    Unsettled(sqlx::Error),
}

impl From<sqlx::Error> for ChangeFault {
    /// A failure before the commit is rolled back; after a lost connection, the database itself does it.
    fn from(error: sqlx::Error) -> Self {
        Self::NotDone(error)
    }
}

const SCHEMA: Schema = Schema {
    name: "tasks",
    lock: 7_239_418_501_266,
    migrations: &[Migration {
        version: 1,
        sqlite: include_str!("../../migrations/sqlite/0001_tasks.sql"),
        postgres: include_str!("../../migrations/postgres/0001_tasks.sql"),
    }],
};

/// A handle to the database; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Store(Pools);

impl Store {
    /// Opens the database, creates what is missing and migrates its tables.
    pub(crate) async fn open(location: &Location) -> anyhow::Result<Self> {
        Pools::open(location, &SCHEMA).await.map(Self)
    }

    /// Deletes expired idempotency keys, at the start and every hour.
    pub(crate) fn keep_pruned(&self, stop: CancellationToken) -> Pruning {
        let store = self.clone();
        Pruning::start("old idempotency keys", stop, move |now| {
            let store = store.clone();
            async move { store.prune(now).await }
        })
    }

    /// Executes a change and stores its answer under the key, in one transaction. A key that was used before returns
    /// its first answer.
    pub(crate) async fn change(
        &self,
        user: &UserId,
        change: &Change,
        claim: Option<&Claim>,
        now: Moment,
    ) -> Result<Answer, ChangeFault> {
        match &self.0 {
            Pools::Sqlite { writer, .. } => queries::sqlite::change(writer, user, change, claim, now).await,
            Pools::Postgres(pool) => queries::postgres::change(pool, user, change, claim, now).await,
        }
    }

    /// At most `limit` tasks after `after`, and the number of matches on all pages.
    pub(crate) async fn list(
        &self,
        user: &UserId,
        filter: &Filter,
        after: &Place,
        limit: i64,
    ) -> Result<(Vec<(Task, Place)>, u64), sqlx::Error> {
        let pattern = text::containing(filter.query.as_deref().unwrap_or_default());
        on_readers!(self, |pool| {
            let mut connection = pool.acquire().await?;
            let listed: Vec<Listed> = sqlx::query_as(sql::LIST)
                .bind(user.as_str())
                .bind(filter.open)
                .bind(filter.done)
                .bind(&pattern)
                .bind(filter.due_before.is_some())
                .bind(filter.due_before)
                .bind(filter.due_after.is_some())
                .bind(filter.due_after)
                .bind(after.group)
                .bind(after.time)
                .bind(after.priority)
                .bind(after.created_at)
                .bind(&after.id)
                .bind(limit)
                .fetch_all(&mut *connection)
                .await?;
            let total: i64 = sqlx::query_scalar(sql::COUNT)
                .bind(user.as_str())
                .bind(filter.open)
                .bind(filter.done)
                .bind(&pattern)
                .bind(filter.due_before.is_some())
                .bind(filter.due_before)
                .bind(filter.due_after.is_some())
                .bind(filter.due_after)
                .fetch_one(&mut *connection)
                .await?;
            let listed = listed.into_iter().map(|Listed(task, place)| (task, place));
            Ok((listed.collect(), total.unsigned_abs()))
        })
    }

    /// Deletes expired idempotency keys.
    pub(crate) async fn prune(&self, now: Moment) -> Result<u64, sqlx::Error> {
        on_writer!(self, |pool| {
            let pruned = sqlx::query(sql::PRUNE)
                .bind(now.0 - KEY_LIFE_MICROS)
                .execute(pool)
                .await?;
            Ok(pruned.rows_affected())
        })
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> Result<(), sqlx::Error> {
        on_readers!(self, |pool| { sqlx::query("SELECT 1").execute(pool).await.map(drop) })
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }
}

/// A task of a list, and where it stands.
struct Listed(Task, Place);

impl<'r, R: Row> FromRow<'r, R> for Listed
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let place = Place {
            group: row.try_get("order_group")?,
            time: row.try_get("order_time")?,
            priority: row.try_get("order_priority")?,
            created_at: row.try_get("created_at")?,
            id: row.try_get("id")?,
        };
        Ok(Self(Task::from_row(row)?, place))
    }
}

impl<'r, R: Row> FromRow<'r, R> for Task
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    bool: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let priority: String = row.try_get("priority")?;
        let done: bool = row.try_get("done")?;
        let completed_at: Option<i64> = row.try_get("completed_at")?;
        Ok(Self {
            id: row.try_get("id")?,
            description: row.try_get("description")?,
            status: if done { Status::Done } else { Status::Open },
            priority: priority
                .parse()
                .map_err(|error: strum::ParseError| sqlx::Error::Decode(error.into()))?,
            due: row.try_get("due")?,
            notes: row.try_get("notes")?,
            created_at: Moment(row.try_get("created_at")?),
            updated_at: Moment(row.try_get("updated_at")?),
            completed_at: completed_at.map(Moment),
        })
    }
}

fn unknown_task() -> ToolError {
    ToolError::new(
        Code::UnknownTask,
        "The user has no such task. list_tasks shows the tasks there are, with their ids.",
    )
}

fn ambiguous(candidates: &[Task]) -> ToolError {
    let shown: Vec<_> = candidates
        .iter()
        .take(MAX_CANDIDATES)
        .map(|task| {
            let mut candidate = serde_json::json!({
                "id": task.id,
                "description": task.description,
                "status": task.status,
            });
            if let Some(due) = &task.due {
                candidate["due"] = due.as_str().into();
            }
            candidate
        })
        .collect();
    ToolError::new(
        Code::AmbiguousTitle,
        "Several tasks match this title, and nothing was done. Ask the user which one is meant, then \
         give its id.",
    )
    .with("candidates", shown)
    .with("more", candidates.len() > MAX_CANDIDATES)
}

fn too_many_tasks() -> ToolError {
    ToolError::new(
        Code::TooManyTasks,
        format!("The user has {MAX_TASKS} tasks, which is the most there can be. Tasks that are done can be deleted."),
    )
    .with("limit", MAX_TASKS)
}
