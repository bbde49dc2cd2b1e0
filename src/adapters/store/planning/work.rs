//! What the work on a confirmed plan does with its session, commit by commit, until it ends.

use std::sync::Arc;

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::super::runs::{id, int};
use super::write::{NewVersion, hash};
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::ports::commit::{SessionEnd, Worked};
use crate::ports::planning::VersionKind;
use crate::ports::runs::Reopen;

/// The author of the versions that reflections make.
const AGENT: &str = "agent";

impl Batch<'_> {
    /// The work of an outermost run on a session's plan has come this far. A session that this run does not work for
    /// stays as it is. One that was ended meanwhile keeps its status, and gets the plan and the cleanup all the same.
    /// `at` is the time of the commit, if it has one.
    pub(in super::super) async fn work(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        root: RunId,
        worked: &Worked,
        at: Option<i64>,
    ) -> Result<(), Fault> {
        let texts = self.planning_texts();
        let plan = worked.plan.to_json();
        let mut changed = worked.changed.as_ref();
        if changed.is_some() {
            // An earlier commit of the same op, whose acknowledgement was lost, has written the version.
            let values = vec![id(session), id(root), Value::text(&hash(&plan)), Value::Int(at)];
            if conn.first(&texts.is_changed, values).await?.is_some() {
                changed = None;
            }
        }
        let cleanup = worked.ended.as_ref().and_then(|ended| ended.cleanup.as_ref());
        let cleanup = cleanup.map(serde_json::to_string).transpose();
        let cleanup = cleanup.map_err(|error| Fault::Refused(error.to_string().into()))?;
        let values = vec![
            id(session),
            id(root),
            Value::text(&plan),
            int(i64::from(worked.plan.last)),
            int(i64::from(changed.is_some())),
            cleanup.as_deref().map_or(Value::Text(None), Value::text),
            Value::Int(at),
        ];
        let Some(row) = conn.first(&texts.worked, values).await? else {
            return Ok(());
        };
        if let Some(changed) = changed {
            let version = NewVersion {
                plan: &worked.plan,
                by: AGENT,
                kind: VersionKind::Changed,
                why: &changed.why,
                changes: &changed.changes,
                run: Some(root),
            };
            self.add_version(conn, session, &row, &version).await?;
        }
        if let Some(SessionEnd { status, reason, .. }) = &worked.ended {
            let reason = reason.as_ref().map(|(reason, detail)| (*reason, detail));
            self.end_work(conn, session, root, *status, reason, at).await?;
        }
        Ok(())
    }

    /// Ends a session whose plan this run works through, unless it was ended meanwhile. True if that changed it.
    pub(super) async fn end_work(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        root: RunId,
        status: SessionStatus,
        reason: Option<(SessionReason, &Arc<str>)>,
        at: Option<i64>,
    ) -> Result<bool, Fault> {
        let values = vec![
            id(session),
            id(root),
            Value::text(status.as_str()),
            reason.map_or(Value::Text(None), |(reason, _)| Value::text(reason.as_str())),
            reason.map_or(Value::Text(None), |(_, detail)| Value::shared(detail)),
            Value::Int(at),
        ];
        let has_ended = conn.execute(&self.planning_texts().finish, values).await? == 1;
        if has_ended {
            self.audit_end(session, root, status, reason.map(|(reason, _)| reason));
        }
        Ok(has_ended)
    }

    /// Continues the session of a run that is reopened. False: it did not fail with the run, or its deadline has passed.
    pub(in super::super) async fn resume_session(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        run: &Reopen,
    ) -> Result<bool, Fault> {
        let values = vec![id(session), id(run.run), int(run.at_us)];
        Ok(conn.execute(&self.planning_texts().resume, values).await? == 1)
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
