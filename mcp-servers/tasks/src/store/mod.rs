//! Where tasks are kept: SQLite or PostgreSQL, with one SQL text for both.

mod location;
mod migrate;
mod open;
mod pruning;
mod queries;
mod sql;

use sqlx::{PgPool, SqlitePool};

pub(crate) use location::Location;

use crate::answer::Answer;
use crate::error::{Code, ToolError};
use crate::identity::UserId;
use crate::task::{Change, Filter, Moment, Place, Task};

/// How many candidates an `ambiguous_title` error names.
const MAX_CANDIDATES: usize = 10;

/// The most tasks of one user, done ones included.
const MAX_TASKS: i64 = 10_000;

/// Idempotency keys are honoured for a week.
const KEY_LIFE_MICROS: i64 = 7 * 24 * 60 * 60 * 1_000_000;

/// A caller's promise that calls with one key are one call.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) tool: String,
    pub(crate) key: String,
    /// Stands for the arguments, so that a key used for something else is noticed.
    pub(crate) digest: String,
}

/// Why a change has no answer.
#[derive(Debug)]
pub(crate) enum ChangeFault {
    /// Nothing was changed.
    NotDone(sqlx::Error),
    /// The commit was begun and its end is not known.
    Unsettled(sqlx::Error),
}

impl From<sqlx::Error> for ChangeFault {
    /// All that fails before the commit is rolled back, by the database itself where the connection is lost.
    fn from(error: sqlx::Error) -> Self {
        Self::NotDone(error)
    }
}

/// A handle to the database; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    /// One connection writes, so writers in this process queue instead of failing; a few read.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PgPool),
}

impl Store {
    /// Opens the database, creates what is missing and brings its tables up to date.
    pub(crate) async fn open(location: &Location) -> anyhow::Result<Self> {
        open::open(location).await
    }

    /// Carries out a change and keeps its answer under the key, in one transaction. A key that was
    /// used before gets the answer it got then.
    pub(crate) async fn change(
        &self,
        user: &UserId,
        change: &Change,
        claim: Option<&Claim>,
        now: Moment,
    ) -> Result<Answer, ChangeFault> {
        match self {
            Self::Sqlite { writer, .. } => queries::sqlite::change(writer, user, change, claim, now).await,
            Self::Postgres(pool) => queries::postgres::change(pool, user, change, claim, now).await,
        }
    }

    /// At most `limit` tasks that follow `after`, and how many match on all pages together.
    pub(crate) async fn list(
        &self,
        user: &UserId,
        filter: &Filter,
        after: &Place,
        limit: i64,
    ) -> Result<(Vec<(Task, Place)>, u64), sqlx::Error> {
        match self {
            Self::Sqlite { readers, .. } => queries::sqlite::list(readers, user, filter, after, limit).await,
            Self::Postgres(pool) => queries::postgres::list(pool, user, filter, after, limit).await,
        }
    }

    /// Forgets idempotency keys that are past their life.
    pub(crate) async fn prune(&self, now: Moment) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite { writer, .. } => queries::sqlite::prune(writer, now).await,
            Self::Postgres(pool) => queries::postgres::prune(pool, now).await,
        }
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite { readers, .. } => queries::sqlite::ping(readers).await,
            Self::Postgres(pool) => queries::postgres::ping(pool).await,
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
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

fn key_reused() -> ToolError {
    ToolError::new(
        Code::IdempotencyKeyReused,
        "This idempotency key was used for a call with other arguments. A new call needs a new key.",
    )
}
