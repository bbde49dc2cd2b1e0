//! Reads of planning sessions.

use std::ops::ControlFlow;

use super::super::Store;
use super::super::db::{Dialect, Row, Value};
use super::super::parsed::{opt_parsed, parsed};
use super::row::{SESSION, VERSION, WAIT, session, version, wait};
use crate::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use crate::ports::planning::{PlanVersion, SessionWait, StoredSession};
use crate::ports::records::{QueryError, RecordError};

/// time, number of rows → open sessions whose deadline has passed, earliest first.
const OVERDUE: &str = "SELECT id FROM planning_session WHERE completed_at IS NULL AND deadline <= $1 \
     ORDER BY deadline, id LIMIT $2";

/// time, number of rows → sessions that have waited for a confirmation since then.
const UNCONFIRMED: &str = "SELECT id FROM planning_session WHERE completed_at IS NULL AND status = 'AWAITING_CONFIRMATION' \
     AND updated_at <= $1 ORDER BY deadline, id LIMIT $2";

/// number of rows → sessions whose run has ended, or was deleted, without moving them on.
const LEFT_BEHIND: &str = "SELECT left_behind.id FROM planning_session left_behind \
     WHERE (left_behind.status = 'PLANNING' OR left_behind.status = 'EXECUTING') AND NOT EXISTS (SELECT 1 FROM agent_run run WHERE run.id = left_behind.run_id AND run.completed_at IS NULL) \
     ORDER BY left_behind.run_id LIMIT $1";

/// time, number of rows → sessions whose run waits for a settlement although the deadline has passed.
const WAITS_PAST: &str = "SELECT session.id FROM agent_run run JOIN planning_session session ON session.id = run.session_id \
     WHERE run.status = 'awaiting_confirmation' AND run.waits_for IS NOT NULL AND session.deadline <= $1 \
     ORDER BY run.session_id, run.id LIMIT $2";

/// session → what its run, and the runs that it called, wait for.
fn waits(dialect: Dialect) -> String {
    format!(
        "SELECT {WAIT} FROM planning_session session JOIN agent_action action ON action.root_id = session.run_id \
         WHERE session.id = $1 AND session.completed_at IS NULL AND (action.status = 'in_doubt' \
         OR (action.status = 'awaiting_confirmation' AND action.expires_at > {})) \
         ORDER BY action.created_at, action.run_id, action.sequence",
        dialect.now()
    )
}

impl Store {
    pub(super) async fn one_session(
        &self,
        id: PlanningSessionId,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> Result<Option<StoredSession>, QueryError> {
        let sql = format!("SELECT {SESSION} FROM planning_session WHERE id = $1 AND tenant = $2");
        self.one(sql, &id.to_string(), tenant, user, session).await
    }

    pub(super) async fn session_of_run(&self, run: RunId) -> Result<Option<PlanningSessionId>, QueryError> {
        let sql = "SELECT session_id FROM agent_run WHERE id = $1";
        let mut found = None;
        let each = &mut |row: Row| {
            found = opt_parsed(&row, 0, PlanningSessionId::parse)?;
            Ok(ControlFlow::Break(()))
        };
        self.working
            .rows(sql.into(), vec![Value::text(&run.to_string())], each)
            .await?;
        Ok(found)
    }

    pub(super) async fn runs_of_session(&self, session: PlanningSessionId) -> Result<Vec<(RunId, i64)>, QueryError> {
        let sql = "SELECT id, created_at FROM agent_run WHERE session_id = $1 ORDER BY created_at, id";
        let mut runs = Vec::new();
        let each = &mut |row: Row| {
            runs.push((parsed(&row, 0, RunId::parse)?, row.int(1)?));
            Ok(ControlFlow::Continue(()))
        };
        let values = vec![Value::text(&session.to_string())];
        self.working.rows(sql.into(), values, each).await?;
        Ok(runs)
    }

    pub(super) async fn versions_of(
        &self,
        session: PlanningSessionId,
        after: u32,
        most: u32,
    ) -> Result<Vec<PlanVersion>, QueryError> {
        let sql = format!(
            "SELECT {VERSION} FROM planning_change WHERE session_id = $1 AND version > $2 ORDER BY version LIMIT $3"
        );
        let values = vec![
            Value::text(&session.to_string()),
            Value::Int(Some(i64::from(after))),
            Value::Int(Some(i64::from(most))),
        ];
        let mut versions = Vec::new();
        let each = &mut |row: Row| {
            versions.push(version(&row)?);
            Ok(ControlFlow::Continue(()))
        };
        self.working.rows(sql.into(), values, each).await?;
        Ok(versions)
    }

    pub(super) async fn waits_of(&self, session: PlanningSessionId) -> Result<Vec<SessionWait>, QueryError> {
        let sql = waits(self.shared.target.dialect());
        let mut found = Vec::new();
        let each = &mut |row: Row| {
            found.push(wait(&row)?);
            Ok(ControlFlow::Continue(()))
        };
        let values = vec![Value::text(&session.to_string())];
        self.working.rows(sql.into(), values, each).await?;
        Ok(found)
    }

    /// Sessions that a sweep at this time ends or moves on.
    pub(super) async fn due_sessions(
        &self,
        now_us: i64,
        unconfirmed_us: i64,
        most: u32,
    ) -> Result<Vec<PlanningSessionId>, RecordError> {
        let mut due: Vec<PlanningSessionId> = Vec::new();
        let limit = Value::Int(Some(i64::from(most)));
        for (sql, values) in [
            (OVERDUE, vec![Value::Int(Some(now_us)), limit.clone()]),
            (UNCONFIRMED, vec![Value::Int(Some(unconfirmed_us)), limit.clone()]),
            (LEFT_BEHIND, vec![limit.clone()]),
            (WAITS_PAST, vec![Value::Int(Some(now_us)), limit.clone()]),
        ] {
            let each = &mut |row: Row| {
                let session = parsed(&row, 0, PlanningSessionId::parse)?;
                if !due.contains(&session) {
                    due.push(session);
                }
                Ok(ControlFlow::Continue(()))
            };
            let read = self.working.rows(sql.into(), values, each).await;
            read.map_err(|error| RecordError::Unavailable(error.to_string().into()))?;
        }
        due.truncate(most as usize);
        Ok(due)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::connect::Target;
    use super::super::super::db::Dialect;
    use super::super::super::migrate;
    use super::super::PlanningStatements;
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
        let texts = PlanningStatements::new(Dialect::Sqlite);
        let one = format!("SELECT {SESSION} FROM planning_session WHERE id = $1 AND tenant = $2");
        let by_session = "agent_run_by_session";
        for (sql, indexes) in [
            (OVERDUE.into(), &["planning_session_due"][..]),
            (UNCONFIRMED.into(), &["planning_session_due"]),
            (
                LEFT_BEHIND.into(),
                &["planning_session_at_work", "autoindex_agent_run_1"],
            ),
            (
                WAITS_PAST.into(),
                &["agent_run_by_settlement", "autoindex_planning_session_1"],
            ),
            (
                waits(Dialect::Sqlite).into(),
                &["autoindex_planning_session_1", "agent_action_by_root"],
            ),
            (texts.expire, &["autoindex_planning_session_1"]),
            (texts.open, &["planning_session_due"]),
            (
                one.into(),
                &[
                    "autoindex_planning_session_1",
                    by_session,
                    by_session,
                    by_session,
                    by_session,
                    by_session,
                    "autoindex_agent_run_1",
                ],
            ),
            (texts.prunable, &["planning_session_over"]),
            (texts.refine, &["autoindex_planning_session_1"]),
            (texts.execute, &["autoindex_planning_session_1"]),
            (texts.worked, &["autoindex_planning_session_1"]),
            (
                texts.is_changed,
                &["autoindex_planning_session_1", "autoindex_planning_change_1"],
            ),
            (texts.finish, &["autoindex_planning_session_1"]),
            (
                texts.left_behind,
                &[
                    "autoindex_planning_session_1",
                    "autoindex_agent_run_1",
                    "agent_run_by_root",
                ],
            ),
            (
                texts.waits_past,
                &["autoindex_planning_session_1", "autoindex_agent_run_1"],
            ),
            (texts.prune_versions, &["autoindex_planning_change_1"]),
        ] {
            let mut plan = Vec::new();
            let values = vec![Value::Int(Some(1)); 10];
            conn.fetch(&format!("EXPLAIN QUERY PLAN {sql}").into(), values, &mut |row| {
                plan.push(row.text(3)?);
                Ok(ControlFlow::Continue(()))
            })
            .await
            .unwrap();
            let reads = |step: &&String| {
                step.starts_with("SEARCH") || (step.starts_with("SCAN") && *step != "SCAN CONSTANT ROW")
            };
            let reads: Vec<_> = plan.iter().filter(reads).collect();
            assert_eq!(reads.len(), indexes.len(), "{sql}: {plan:?}");
            for (step, index) in reads.into_iter().zip(indexes) {
                assert!(step.contains(index), "{sql}: {plan:?}");
            }
        }
        conn.close().await;
    }
}
