//! The store's functions, written once and instantiated for each database.

mod change;
mod find;
mod keys;
mod list;
mod rows;

macro_rules! queries_on {
    ($module:ident, $database:ty, $row:ty, $begin:literal) => {
        pub(super) mod $module {
            use gavel_mcp_base::{Answer, Moment, ToolError, UserId, key_reused};
            use sqlx::{FromRow, Pool, Row, Transaction};

            use crate::store::{
                ChangeFault, Claim, KEY_LIFE_MICROS, MAX_CANDIDATES, MAX_TASKS, ambiguous, sql, too_many_tasks,
                unknown_task,
            };
            use crate::task::{Change, Filter, NewTask, Patch, Place, Status, Target, Task};
            use crate::text;

            type Db = $database;
            type Found = Result<Task, ToolError>;

            super::change::change_on!($begin);
            super::find::find_on!();
            super::keys::keys_on!();
            super::list::list_on!();
            super::rows::rows_on!($row);

            pub(crate) async fn ping(pool: &Pool<Db>) -> Result<(), sqlx::Error> {
                sqlx::query("SELECT 1").execute(pool).await.map(drop)
            }
        }
    };
}

queries_on!(sqlite, sqlx::Sqlite, sqlx::sqlite::SqliteRow, "BEGIN IMMEDIATE");
queries_on!(postgres, sqlx::Postgres, sqlx::postgres::PgRow, "BEGIN");
