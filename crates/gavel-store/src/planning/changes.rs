//! Changes of a session that no run makes: a person edits its plan or cancels it, time ends it, and retention deletes
//! it.

use std::time::Duration;

use serde::Deserialize;

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use super::super::transition::session_may_become;
use super::write::{NEW_VERSION, Numbered, SessionState, hash};
use crate::api::planning::{Cleanup, VersionKind};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::plan::Plan;
use crate::domain::planning_session::SessionReason;
use crate::domain::planning_session::SessionStatus::{self, Cancelled, DeadlineExceeded, Executing};
use crate::ports::claims::Claimed;
use crate::ports::commit::{SessionEnd, Worked};
use crate::ports::planning::{Moved, PlanEdit, SessionCancel};
use crate::queue::Batch;

/// Sessions that are deleted in one transaction.
const PRUNED_AT_ONCE: usize = 32;

impl Batch<'_> {
    pub(crate) async fn edit_plan(&self, conn: &mut Conn, edit: &PlanEdit) -> Result<Moved, Fault> {
        let (made, plan) = (&edit.made, edit.made.plan.to_json());
        // An earlier commit of the same op, whose acknowledgement was lost, has written the version.
        let is_edited = "SELECT version FROM planning_change WHERE session_id = $1 AND version = $2 AND at = $3 \
                         AND by_name = $4 AND hash = $5 AND kind = 'edited'";
        let values = values![edit.session, edit.version + 1, edit.at_us, &made.by, &hash(&plan)];
        if conn.exists(is_edited, values).await? {
            return Ok(Moved::Yes);
        }
        if let Some(claim) = &edit.claim {
            match self.claim(conn, claim, &edit.session.to_string(), None).await? {
                Claimed::New => {}
                Claimed::Mismatch => return Ok(Moved::Mismatch),
                // The same request has edited the plan before: otherwise the key would be free.
                Claimed::Run(_) | Claimed::Running | Claimed::Answered(_) => return Ok(Moved::Yes),
            }
        }
        // It waits for confirmation before and after.
        let update = sql!(
            "UPDATE planning_session SET {NEW_VERSION}, updated_at = $6 \
             WHERE id = $1 AND version = $2 AND deadline > $6 AND status = 'AWAITING_CONFIRMATION' \
             RETURNING version, updated_at AS at_us"
        );
        let notes = Value::json(&made.notes);
        let values = values![edit.session, edit.version, plan, made.plan.last, notes, edit.at_us];
        if let Some(numbered) = conn.one::<Numbered>(update, values).await? {
            let version = numbered.into_version(made, VersionKind::Edited, None);
            self.add_version(conn, edit.session, version, made.plan.last).await?;
            return Ok(Moved::Yes);
        }
        if let Some(claim) = &edit.claim {
            self.release_claim(conn, &claim.scope, edit.session).await?;
        }
        Ok(match self.state(conn, edit.session).await? {
            Some(state) => {
                let (status, version) = state.at(edit.at_us);
                Moved::No(status, version)
            }
            None => Moved::NotFound,
        })
    }

    async fn state(&self, conn: &mut Conn, session: PlanningSessionId) -> Result<Option<SessionState>, Fault> {
        let state = "SELECT status, version, deadline, completed_at FROM planning_session WHERE id = $1 \
                     @postgres(FOR UPDATE)";
        Ok(conn.one(state, values![session]).await?)
    }

    pub(crate) async fn cancel_session(&self, conn: &mut Conn, cancel: &SessionCancel) -> Result<Moved, Fault> {
        let detail = match &cancel.why {
            Some(why) => format!("cancelled by {}: {why}", cancel.by),
            None => format!("cancelled by {}", cancel.by),
        };
        let update = sql!(
            "UPDATE planning_session SET status = 'CANCELLED', status_code = $2, status_detail = $3, updated_at = $4, \
             completed_at = $4 WHERE id = $1 AND {} RETURNING run_id",
            session_may_become(Cancelled)
        );
        let values = values![cancel.session, SessionReason::Cancelled, detail, cancel.at_us];
        let Some(run) = conn.one::<RunId>(update, values).await? else {
            let Some(state) = self.state(conn, cancel.session).await? else {
                return Ok(Moved::NotFound);
            };
            // The time as it is stored: what has ended is not ended again by its deadline.
            let (status, version) = state.at(i64::MIN);
            // From an earlier commit of the same op, whose acknowledgement was lost.
            let own = status == Cancelled && state.completed_at == Some(cancel.at_us);
            return Ok(if own { Moved::Yes } else { Moved::No(status, version) });
        };
        self.cancel(conn, run, &cancel.by).await?;
        let entry = Entry::new(AuditKind::SessionCancelled, cancel.session)
            .decision(run)
            .by(&cancel.by);
        self.audit(match &cancel.why {
            Some(why) => entry.with_content("reason", &self.writing.content, why),
            None => entry,
        });
        Ok(Moved::Yes)
    }

    /// Ends a session whose deadline has passed or whose plan waited too long, or moves it on if its run ended without
    /// doing so. A run that waits for a settlement continues after the deadline, so that it can end. True if that changed
    /// anything.
    pub(crate) async fn sweep_session(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        now_us: i64,
        unconfirmed_us: i64,
    ) -> Result<bool, Fault> {
        #[derive(Deserialize)]
        struct Expired {
            run_id: RunId,
            status_code: SessionReason,
        }
        let expire = sql!(
            "UPDATE planning_session SET status = 'DEADLINE_EXCEEDED', updated_at = $2, completed_at = $2, \
             status_code = CASE WHEN deadline <= $2 THEN 'deadline' ELSE 'unconfirmed' END, \
             status_detail = CASE WHEN deadline <= $2 \
             THEN 'the deadline passed before the session had reached its goal' \
             ELSE 'no person confirmed the plan in time (planning.confirm_hours)' END \
             WHERE id = $1 AND {} \
             AND (deadline <= $2 OR (status = 'AWAITING_CONFIRMATION' AND updated_at <= $3)) \
             RETURNING run_id, status_code",
            session_may_become(DeadlineExceeded)
        );
        let expired: Option<Expired> = conn.one(expire, values![session, now_us, unconfirmed_us]).await?;
        if let Some(expired) = &expired {
            self.audit_end(session, expired.run_id, DeadlineExceeded, Some(expired.status_code));
        }
        let waits_past = "SELECT run.id FROM planning_session session JOIN agent_run run ON run.id = session.run_id \
                          WHERE session.id = $1 AND session.deadline <= $2 AND run.status = 'awaiting_confirmation' \
                          AND run.waits_for IS NOT NULL";
        if let Some(run) = conn.one(waits_past, values![session, now_us]).await? {
            self.wake(conn, run).await?;
            return Ok(true);
        }
        Ok(expired.is_some() || self.move_on(conn, session, now_us).await?)
    }

    /// Moves on a session whose run ended, or was deleted, without doing so.
    async fn move_on(&self, conn: &mut Conn, session: PlanningSessionId, now_us: i64) -> Result<bool, Fault> {
        #[derive(Deserialize)]
        struct LeftBehind {
            run_id: RunId,
            run_status: Option<RunStatus>,
            error_message: Option<String>,
            status: SessionStatus,
            plan: Plan,
            /// The number of runs that its run called.
            tasks: u32,
        }
        let left_behind = "SELECT session.run_id, run.status AS run_status, run.error_message, session.status, \
                           session.plan AS \"plan.tasks\", session.last_task AS \"plan.last\", \
                           (SELECT COUNT(*) FROM agent_run task WHERE task.root_id = session.run_id \
                           AND task.id <> session.run_id) AS tasks \
                           FROM planning_session session LEFT JOIN agent_run run ON run.id = session.run_id \
                           WHERE session.id = $1 AND (session.status = 'PLANNING' OR session.status = 'EXECUTING') \
                           AND (run.id IS NULL OR run.completed_at IS NOT NULL)";
        let Some(left) = conn.one::<LeftBehind>(left_behind, values![session]).await? else {
            return Ok(false);
        };
        let works = left.status == Executing;
        let (reason, detail) = match left.run_status {
            Some(RunStatus::Cancelled) => (SessionReason::Cancelled, "its run was cancelled".to_owned()),
            _ => {
                let missing = if works { "a result" } else { "a plan" };
                let ended = || format!("its run ended without {missing}");
                (SessionReason::Internal, left.error_message.unwrap_or_else(ended))
            }
        };
        let (detail, at) = (detail.into(), Some(now_us));
        if !works {
            return self.make_no_plan(conn, session, left.run_id, reason, &detail, at).await;
        }
        // A confirmed plan never waits for its confirmation again.
        let status = SessionStatus::without_plan(reason, false);
        let mut worked = Worked {
            plan: left.plan,
            changed: None,
            ended: Some(SessionEnd {
                status,
                reason: Some((reason, detail)),
                // The processes that would have cleaned up were lost.
                cleanup: (left.tasks > 0).then(|| Cleanup::unknown("it was not done")),
            }),
        };
        worked.plan.end_with(status);
        self.work(conn, session, left.run_id, &worked, at).await?;
        Ok(true)
    }

    /// Deletes sessions that ended this long ago, with the versions of their plans. Their runs follow, once no session
    /// refers to them. True if there may be more.
    pub(crate) async fn prune_planning(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        let prunable = sql!(
            "SELECT id FROM planning_session WHERE completed_at IS NOT NULL AND completed_at <= @now - $1 \
             ORDER BY completed_at LIMIT {PRUNED_AT_ONCE} @postgres(FOR UPDATE SKIP LOCKED)"
        );
        let sessions: Vec<PlanningSessionId> = conn.all(prunable, values![kept]).await?;
        let may_be_more = sessions.len() == PRUNED_AT_ONCE;
        if !sessions.is_empty() {
            let sessions = vec![Value::list(sessions)];
            conn.execute("DELETE FROM planning_change WHERE session_id @in($1)", sessions.clone())
                .await?;
            conn.execute("DELETE FROM planning_session WHERE id @in($1)", sessions)
                .await?;
        }
        Ok(may_be_more)
    }
}
