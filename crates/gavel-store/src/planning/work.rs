//! What the work on a confirmed plan does with its session, commit by commit, until it ends.

use std::sync::Arc;

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use super::super::transition::{any, session_may_become};
use super::write::{Numbered, hash};
use crate::api::planning::{Version, VersionKind};
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::planning_session::SessionReason;
use crate::domain::planning_session::SessionStatus::{self, Cancelled, Completed, DeadlineExceeded, Failed};
use crate::domain::time::Timestamp;
use crate::ports::commit::{SessionEnd, Worked};
use crate::ports::runs::Reopen;
use crate::queue::Batch;

/// The author of the versions that reflections make.
const AGENT: &str = "agent";

impl Batch<'_> {
    /// The work of an outermost run on a session's plan has come this far. A session that this run does not work for
    /// stays as it is. One that was ended meanwhile keeps its status, and gets the plan and the cleanup all the same.
    /// `at` is the time of the commit, if it has one.
    pub(crate) async fn work(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        root: RunId,
        worked: &Worked,
        at: Option<i64>,
    ) -> Result<(), Fault> {
        let plan = worked.plan.to_json();
        let mut changed = worked.changed.as_ref();
        // An earlier commit of the same op, whose acknowledgement was lost, has written the version.
        let is_changed = "SELECT change.version FROM planning_session session JOIN planning_change change \
                          ON change.session_id = session.id AND change.version = session.version \
                          WHERE session.id = $1 AND change.run_id = $2 AND change.hash = $3 AND change.kind = 'changed' \
                          AND (CAST($4 AS BIGINT) IS NULL OR change.at = $4)";
        if changed.is_some()
            && conn
                .exists(is_changed, values![session, root, &hash(&plan), at])
                .await?
        {
            changed = None;
        }
        let cleanup = worked.ended.as_ref().and_then(|ended| ended.cleanup.as_ref());
        // An end that came meanwhile remains, and says since when.
        let update = "UPDATE planning_session SET plan = $3, last_task = $4, version = version + $5, \
                      cleanup = COALESCE($6, cleanup), updated_at = CASE \
                      WHEN updated_at > COALESCE(CAST($7 AS BIGINT), @now) THEN updated_at \
                      ELSE COALESCE(CAST($7 AS BIGINT), @now) END \
                      WHERE id = $1 AND run_id = $2 AND started_at IS NOT NULL \
                      RETURNING version, COALESCE(CAST($7 AS BIGINT), @now) AS at_us";
        let values = values![
            session,
            root,
            plan,
            worked.plan.last,
            u32::from(changed.is_some()),
            cleanup.map_or(Value::Text(None), Value::json),
            at,
        ];
        let Some(Numbered { version, at_us }) = conn.one(update, values).await? else {
            return Ok(());
        };
        if let Some(changed) = changed {
            let version = Version {
                version,
                at: Timestamp(at_us),
                by: AGENT.into(),
                kind: VersionKind::Changed,
                why: changed.why.to_string(),
                changes: changed.changes.clone(),
                plan_hash: hash(&worked.plan.to_json()),
                run_id: Some(root),
                plan: worked.plan.tasks.clone(),
            };
            self.add_version(conn, session, version, worked.plan.last).await?;
        }
        if let Some(SessionEnd { status, reason, .. }) = &worked.ended {
            self.end_work(conn, session, root, *status, reason.as_ref(), at).await?;
        }
        Ok(())
    }

    /// Ends a session whose plan this run works through, unless it was ended meanwhile.
    async fn end_work(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        root: RunId,
        status: SessionStatus,
        reason: Option<&(SessionReason, Arc<str>)>,
        at: Option<i64>,
    ) -> Result<(), Fault> {
        let end = sql!(
            "UPDATE planning_session SET status = $3, status_code = $4, status_detail = $5, \
             updated_at = COALESCE(CAST($6 AS BIGINT), @now), completed_at = COALESCE(CAST($6 AS BIGINT), @now) \
             WHERE id = $1 AND run_id = $2 AND status = 'EXECUTING' AND {}",
            any(
                "$3",
                &[Completed, Failed, DeadlineExceeded, Cancelled],
                SessionStatus::as_str,
                session_may_become
            )
        );
        let (code, detail) = (reason.map(|(code, _)| *code), reason.map(|(_, detail)| detail));
        if conn
            .execute(end, values![session, root, status, code, detail, at])
            .await?
            == 1
        {
            self.audit_end(session, root, status, code);
        }
        Ok(())
    }

    /// Continues the session of a run that is reopened. False: it did not fail with the run, or its deadline has passed.
    pub(crate) async fn resume_session(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        run: &Reopen,
    ) -> Result<bool, Fault> {
        let resume = "UPDATE planning_session SET status = 'EXECUTING', status_code = NULL, status_detail = NULL, \
                      cleanup = NULL, completed_at = NULL, updated_at = $3 \
                      WHERE id = $1 AND run_id = $2 AND status = 'FAILED' AND started_at IS NOT NULL AND deadline > $3";
        Ok(conn.execute(resume, values![session, run.run, run.at_us]).await? == 1)
    }

    /// Enters the end of a session in the audit log: any but a cancellation by a person, which has an entry of its own.
    pub(super) fn audit_end(
        &self,
        session: PlanningSessionId,
        run: RunId,
        status: SessionStatus,
        reason: Option<SessionReason>,
    ) {
        let entry = Entry::new(AuditKind::SessionEnded, session)
            .decision(run)
            .by("gavel")
            .with("status", status.as_str());
        self.audit(match reason {
            Some(reason) => entry.with("code", reason.as_str()),
            None => entry,
        });
    }
}
