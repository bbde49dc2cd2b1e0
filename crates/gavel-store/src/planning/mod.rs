//! Planning sessions: port [`PlanningSessions`]. `write`, `work` and `changes` write in the writer's transaction, and
//! `columns` are their columns. Reads use connections that analysts do not use.
//!
//! Every change of a session is one UPDATE with a condition on what it was, so only one of two concurrent changes
//! succeeds. Prompts, plans and their history are working state like the inputs of runs: they are kept whole, whatever
//! `records.content` says.

mod changes;
mod columns;
mod work;
mod write;

pub(super) use columns::SESSION;

use serde::Deserialize;

use self::columns::VERSION;
use super::Store;
use super::db::{sql, values};
use super::error::unavailable;
use super::op::Op;
use super::read::OF_USER;
use crate::api::planning::Version;
use crate::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::planning::{Moved, PlanEdit, PlanningSessions, SessionCancel, SessionWait, StoredSession};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};

/// time, number of rows → open sessions whose deadline has passed, earliest first.
const OVERDUE: &str = "SELECT id FROM planning_session WHERE completed_at IS NULL AND deadline <= $1 \
     ORDER BY deadline, id LIMIT $2";

/// time, number of rows → sessions that have waited for a confirmation since then.
const UNCONFIRMED: &str = "SELECT id FROM planning_session WHERE completed_at IS NULL AND status = 'AWAITING_CONFIRMATION' \
     AND updated_at <= $1 ORDER BY deadline, id LIMIT $2";

/// number of rows → sessions whose run has ended, or was deleted, without moving them on.
const LEFT_BEHIND: &str = "SELECT left_behind.id FROM planning_session left_behind \
     WHERE (left_behind.status = 'PLANNING' OR left_behind.status = 'EXECUTING') \
     AND NOT EXISTS (SELECT 1 FROM agent_run run WHERE run.id = left_behind.run_id AND run.completed_at IS NULL) \
     ORDER BY left_behind.run_id LIMIT $1";

/// time, number of rows → sessions whose run waits for a settlement although the deadline has passed.
const WAITS_PAST: &str = "SELECT session.id FROM agent_run run JOIN planning_session session ON session.id = run.session_id \
     WHERE run.status = 'awaiting_confirmation' AND run.waits_for IS NOT NULL AND session.deadline <= $1 \
     ORDER BY run.session_id, run.id LIMIT $2";

/// session → what its run, and the runs that it called, wait for.
const WAITS: &str = "SELECT action.id AS action, action.run_id AS run, action.tool, action.status AS \"kind.status\", \
     action.approval_id AS \"kind.approval_id\" \
     FROM planning_session session JOIN agent_action action ON action.root_id = session.run_id \
     WHERE session.id = $1 AND session.completed_at IS NULL AND (action.status = 'in_doubt' \
     OR (action.status = 'awaiting_confirmation' AND action.expires_at > @now)) \
     ORDER BY action.created_at, action.run_id, action.sequence";

impl PlanningSessions for Store {
    fn session<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        session: PlanningSessionId,
    ) -> BoxFuture<'a, Result<Option<StoredSession>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM planning_session WHERE id = $1 AND {OF_USER}",
            SESSION.selected()
        );
        Box::pin(self.working.one(sql, values![session, tenant, user]))
    }

    fn session_of(&self, run: RunId) -> BoxFuture<'_, Result<Option<PlanningSessionId>, QueryError>> {
        let sql = "SELECT session_id FROM agent_run WHERE id = $1";
        Box::pin(async move { Ok(self.working.one(sql, values![run]).await?.flatten()) })
    }

    fn runs(&self, session: PlanningSessionId) -> BoxFuture<'_, Result<Vec<(RunId, i64)>, QueryError>> {
        Box::pin(async move {
            #[derive(Deserialize)]
            struct Run {
                id: RunId,
                created_at: i64,
            }
            let sql = "SELECT id, created_at FROM agent_run WHERE session_id = $1 ORDER BY created_at, id";
            let runs: Vec<Run> = self.working.all(sql, values![session]).await?;
            Ok(runs.into_iter().map(|run| (run.id, run.created_at)).collect())
        })
    }

    fn list<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<StoredSession>, QueryError>> {
        Box::pin(self.reading.planning_sessions(tenant, query))
    }

    fn versions(
        &self,
        session: PlanningSessionId,
        after: u32,
        most: u32,
    ) -> BoxFuture<'_, Result<Vec<Version>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM planning_change WHERE session_id = $1 AND version > $2 ORDER BY version LIMIT $3",
            VERSION.selected_in_camel_case()
        );
        Box::pin(self.working.all(sql, values![session, after, most]))
    }

    fn waiting(&self, session: PlanningSessionId) -> BoxFuture<'_, Result<Vec<SessionWait>, QueryError>> {
        Box::pin(self.working.all(WAITS, values![session]))
    }

    fn edit(&self, edit: PlanEdit) -> BoxFuture<'_, Result<Moved, RecordError>> {
        Box::pin(self.write(Op::EditPlan(Box::new(edit))))
    }

    fn cancel(&self, cancel: SessionCancel) -> BoxFuture<'_, Result<Moved, RecordError>> {
        Box::pin(self.write(Op::CancelSession(cancel)))
    }

    fn sweep(&self, now_us: i64, unconfirmed_us: i64, most: u32) -> BoxFuture<'_, Result<u32, RecordError>> {
        Box::pin(async move {
            let mut due: Vec<PlanningSessionId> = Vec::new();
            for (sql, values) in [
                (OVERDUE, values![now_us, most]),
                (UNCONFIRMED, values![unconfirmed_us, most]),
                (LEFT_BEHIND, values![most]),
                (WAITS_PAST, values![now_us, most]),
            ] {
                let found: Vec<_> = self.working.all(sql, values).await.map_err(unavailable)?;
                for session in found {
                    if !due.contains(&session) {
                        due.push(session);
                    }
                }
            }
            due.truncate(most as usize);
            if due.is_empty() {
                return Ok(0);
            }
            self.write(Op::SweepSessions(due, now_us, unconfirmed_us)).await
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::connect::Target;
    use super::super::db::{Dialect, Value, explain};
    use super::super::migrate;
    use super::*;

    /// What every process asks all the time, and what a request asks, reads an index and no table.
    #[tokio::test]
    async fn an_index_answers_what_is_asked_about_sessions() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("plan.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, migrate::PATIENCE).await.unwrap();
        let one = format!("SELECT {} FROM planning_session WHERE id = $1", SESSION.selected());
        for (sql, indexes) in [
            (OVERDUE, &["planning_session_due"][..]),
            (UNCONFIRMED, &["planning_session_due"]),
            (LEFT_BEHIND, &["planning_session_at_work", "autoindex_agent_run_1"]),
            (WAITS_PAST, &["agent_run_by_settlement", "autoindex_planning_session_1"]),
            (WAITS, &["autoindex_planning_session_1", "agent_action_by_root"]),
            (
                &one,
                &[
                    "autoindex_planning_session_1",
                    "agent_run_by_session",
                    "agent_run_by_session",
                    "agent_run_by_session",
                    "agent_run_by_session",
                    "agent_run_by_session",
                    "autoindex_agent_run_1",
                ],
            ),
        ] {
            let values = vec![Value::from(1_i64); 3];
            let plan = explain(&mut conn, &Dialect::Sqlite.expand(sql), values).await;
            let reads = plan.iter().filter(|step| {
                step.starts_with("SEARCH") || (step.starts_with("SCAN") && *step != "SCAN CONSTANT ROW")
            });
            let reads: Vec<_> = reads.collect();
            assert_eq!(reads.len(), indexes.len(), "{sql}: {plan:?}");
            for (step, index) in reads.into_iter().zip(indexes) {
                assert!(step.contains(index), "{sql}: {plan:?}");
            }
        }
        conn.close().await;
    }
}
