//! Planning sessions: port [`PlanningSessions`]. `write` writes in the writer's transaction. Reads use
//! connections that analysts do not use.
//!
//! Every change of a session is one UPDATE with a condition on what it was, so only one of two concurrent changes
//! succeeds. Prompts, plans and their history are working state like the inputs of runs: they are kept whole, whatever
//! `records.content` says.

mod write;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use write::Numbered;

use super::Store;
use super::audit::{AuditKind, Entry};
use super::db::{Conn, Value, sql, values};
use super::error::{Fault, unavailable};
use super::op::Op;
use super::read::{OF_USER, PLANNING_SESSIONS};
use super::table::{Column, Table};
use super::transition::may_become_any;
use crate::api::planning::{Version, VersionKind};
use crate::domain::canonical::hash;
use crate::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use crate::domain::planning_session::SessionReason;
use crate::domain::planning_session::SessionStatus::{self, Cancelled, Completed, DeadlineExceeded, Failed};
use crate::ports::commit::{SessionEnd, Worked};
use crate::ports::planning::{
    MadePlan, Moved, PlanEdit, PlanNotes, PlanningSessions, SessionCancel, SessionWait, StoredSession,
};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};
use crate::ports::runs::{NewRun, Reopen, SessionWork};
use crate::queue::Batch;

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
const WAITS: &str = "SELECT action.id AS action, action.run_id AS run, action.tool, action.status, action.approval_id \
     FROM planning_session session JOIN agent_action action ON action.root_id = session.run_id \
     WHERE session.id = $1 AND session.completed_at IS NULL AND (action.status = 'in_doubt' \
     OR (action.status = 'awaiting_confirmation' AND action.expires_at > @now)) \
     ORDER BY action.created_at, action.run_id, action.sequence";

#[async_trait]
impl PlanningSessions for Store {
    async fn session(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<Option<StoredSession>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM planning_session WHERE id = $1 AND {OF_USER}",
            SESSION.selected()
        );
        self.working.one(sql, values![session, tenant, user]).await
    }

    async fn session_of(&self, run: RunId) -> Result<Option<PlanningSessionId>, QueryError> {
        let sql = "SELECT session_id FROM agent_run WHERE id = $1";
        Ok(self.working.one(sql, values![run]).await?.flatten())
    }

    async fn runs(&self, session: PlanningSessionId) -> Result<Vec<RunId>, QueryError> {
        let sql = "SELECT id FROM agent_run WHERE session_id = $1 ORDER BY created_at, id";
        Ok(self.working.all(sql, values![session]).await?)
    }

    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<StoredSession>, QueryError> {
        self.reading.page(&PLANNING_SESSIONS, tenant, vec![], query).await
    }

    async fn versions(&self, session: PlanningSessionId, after: u32, most: u32) -> Result<Vec<Version>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM planning_change WHERE session_id = $1 AND version > $2 ORDER BY version LIMIT $3",
            VERSION.selected_in_camel_case()
        );
        self.working.all(sql, values![session, after, most]).await
    }

    async fn waiting(&self, session: PlanningSessionId) -> Result<Vec<SessionWait>, QueryError> {
        self.working.all(WAITS, values![session]).await
    }

    async fn edit(&self, edit: PlanEdit) -> Result<Moved, RecordError> {
        self.write(Op::EditPlan(Box::new(edit))).await
    }

    async fn cancel(&self, cancel: SessionCancel) -> Result<Moved, RecordError> {
        self.write(Op::CancelSession(cancel)).await
    }

    async fn sweep(&self, now_us: i64, unconfirmed_us: i64, most: u32) -> Result<u32, RecordError> {
        let mut due: BTreeSet<PlanningSessionId> = BTreeSet::new();
        for (sql, values) in [
            (OVERDUE, values![now_us, most]),
            (UNCONFIRMED, values![unconfirmed_us, most]),
            (LEFT_BEHIND, values![most]),
            (WAITS_PAST, values![now_us, most]),
        ] {
            let found: Vec<PlanningSessionId> = self.working.all(sql, values).await.map_err(unavailable)?;
            due.extend(found);
        }
        let due: Vec<_> = due.into_iter().take(most as usize).collect();
        if due.is_empty() {
            return Ok(0);
        }
        self.write(Op::SweepSessions(due, now_us, unconfirmed_us)).await
    }
}

/// The sum of a count over the runs of a session.
macro_rules! of_runs {
    ($column:literal) => {
        Session::elsewhere(concat!(
            "(SELECT CAST(COALESCE(SUM(run.",
            $column,
            "), 0) AS BIGINT) FROM agent_run run WHERE run.session_id = planning_session.id)"
        ))
    };
}

/// Prompt, address of the repository and deadline of the session that a run starts.
fn start(run: &NewRun) -> Option<(&Arc<str>, &Arc<str>, i64)> {
    match &run.origin.session()?.work {
        SessionWork::Start {
            prompt,
            repo_url,
            deadline_us,
        } => Some((prompt, repo_url, *deadline_us)),
        SessionWork::Refine { .. } | SessionWork::Execute { .. } => None,
    }
}

type Session = Column<NewRun>;

/// The columns of `planning_session`, which begins with a run.
#[rustfmt::skip] // A line for each.
pub(super) static SESSION: Table<NewRun> = Table { name: "planning_session", columns: &[
    Session::open("id", |run, _| run.origin.session().map(|place| place.session).into()).shown(),
    Session::open("tenant", |run, _| (&run.decision.tenant).into()),
    Session::computed("status", "'PLANNING'").shown(),
    Session::open("user_id", |run, _| (&run.decision.user).into()).shown(),
    Session::open("repo_url", |run, _| start(run).map(|(_, repo_url, _)| repo_url).into()).shown(),
    Session::open("created_at", |run, _| run.decision.created_at.into()).shown(),
    Session::open("deadline", |run, _| start(run).map(|(.., deadline)| deadline).into()).shown(),
    Session::open("prompt", |run, _| start(run).map(|(prompt, ..)| prompt).into()).shown(),
    Session::open("run_id", |run, _| run.id.into()).shown_as("run"),
    Session::open("updated_at", |run, _| run.decision.created_at.into()).shown_as("updated_us"),
    Session::elsewhere("started_at").shown_as("started_us"),
    Session::elsewhere("completed_at").shown_as("completed_us"),
    Session::elsewhere("status_code").shown_as("reason.code"),
    Session::elsewhere("status_detail").shown_as("reason.detail"),
    Session::elsewhere("version").shown(),
    Session::elsewhere("plan").shown_as("plan.tasks"),
    Session::elsewhere("last_task").shown_as("plan.last"),
    Session::elsewhere("notes").shown(),
    Session::elsewhere("refinement_code").shown_as("refinement_failed.code"),
    Session::elsewhere("refinement_detail").shown_as("refinement_failed.detail"),
    Session::elsewhere("cleanup").shown(),
    of_runs!("steps").shown_as("usage.modelCalls"),
    of_runs!("input_tokens").shown_as("usage.inputTokens"),
    of_runs!("output_tokens").shown_as("usage.outputTokens"),
    of_runs!("thought_tokens").shown_as("usage.thoughtTokens"),
    of_runs!("cached_tokens").shown_as("usage.cachedTokens"),
    Session::elsewhere("EXISTS (SELECT 1 FROM agent_run run WHERE run.id = planning_session.run_id \
        AND run.completed_at IS NULL)").shown_as("is_at_work"),
] };

/// A version of a session's plan, with the number of the last id that a task of it has or had.
type NewVersion = (PlanningSessionId, Version, u32);

type VersionColumn = Column<NewVersion>;

/// The columns of `planning_change`: a version of a session's plan.
#[rustfmt::skip] // A line for each.
static VERSION: Table<NewVersion> = Table { name: "planning_change", columns: &[
    VersionColumn::open("session_id", |(session, ..), _| (*session).into()),
    VersionColumn::open("version", |(_, version, _), _| version.version.into()).shown(),
    VersionColumn::open("at", |(_, version, _), _| version.at.0.into()).shown(),
    VersionColumn::open("by_name", |(_, version, _), _| version.by.as_str().into()).shown_as("by"),
    VersionColumn::open("kind", |(_, version, _), _| version.kind.as_str().into()).shown(),
    VersionColumn::open("why", |(_, version, _), _| version.why.as_str().into()).shown(),
    VersionColumn::open("changes", |(_, version, _), _| Value::json(&version.changes)).shown(),
    VersionColumn::open("hash", |(_, version, _), _| version.plan_hash.as_str().into()).shown_as("plan_hash"),
    VersionColumn::open("run_id", |(_, version, _), _| version.run_id.into()).shown(),
    VersionColumn::open("plan", |(_, version, _), _| Value::json(&version.plan)).shown(),
    VersionColumn::open("last_task", |(_, _, last), _| (*last).into()),
] };

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
                      RETURNING version, COALESCE(CAST($7 AS BIGINT), @now) AS at_us, run_id";
        let values = values![
            session,
            root,
            plan,
            worked.plan.last,
            u32::from(changed.is_some()),
            cleanup.map_or(Value::Text(None), Value::json),
            at,
        ];
        let Some(numbered) = conn.one::<Numbered>(update, values).await? else {
            return Ok(());
        };
        if let Some(changed) = changed {
            let made = MadePlan {
                plan: worked.plan.clone(),
                notes: PlanNotes::default(),
                changes: changed.changes.clone(),
                by: AGENT.into(),
                why: Arc::clone(&changed.why),
            };
            self.add_version(conn, session, numbered, VersionKind::Changed, &made)
                .await?;
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
            may_become_any("$3", &[Completed, Failed, DeadlineExceeded, Cancelled])
        );
        let (code, detail) = (reason.map(|(code, _)| *code), reason.map(|(_, detail)| detail));
        let (ended, why) = (status.as_str(), code.map(SessionReason::as_str));
        let values = values![session, root, ended, why, detail, at];
        if conn.execute(end, values).await? == 1 {
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
    fn audit_end(&self, session: PlanningSessionId, run: RunId, status: SessionStatus, reason: Option<SessionReason>) {
        let entry = Entry::new(AuditKind::SessionEnded, session)
            .decision(run)
            .by("gavel")
            .with("status", status.as_str())
            .with_any("code", reason.map(SessionReason::as_str));
        self.audit(entry);
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
