//! What changes a session. Its runs: it begins with one, a run refines its plan or works through it, and the end of a run
//! that plans moves it on. Without a run: a person edits its plan or cancels it, time ends it, and retention deletes it.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use super::super::table::Insert;
use super::super::transition::may_become;
use super::{SESSION, VERSION};
use crate::api::planning::{Cleanup, Version, VersionKind};
use crate::domain::agent_run::RunStatus;
use crate::domain::budget::{Exceeded, Pool};
use crate::domain::canonical::hash;
use crate::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use crate::domain::plan::Plan;
use crate::domain::planning_session::SessionReason;
use crate::domain::planning_session::SessionStatus::{
    self, AwaitingConfirmation, Cancelled, DeadlineExceeded, Executing, Planning,
};
use crate::domain::time::Timestamp;
use crate::ports::claims::Claimed;
use crate::ports::commit::{Planned, SessionEnd, Worked};
use crate::ports::planning::{MadePlan, Moved, PlanEdit, SessionCancel};
use crate::ports::runs::{InSession, NewRun, SessionWork, Started};
use crate::queue::Batch;
use crate::retention::OF;

/// What the author of a new version (plan `$3`, last task `$4`, notes `$5`) leaves behind: nothing of an earlier end or
/// failure.
pub(super) const NEW_VERSION: &str = "status = 'AWAITING_CONFIRMATION', version = version + 1, plan = $3, last_task = $4, \
     notes = $5, status_code = NULL, status_detail = NULL, refinement_code = NULL, refinement_detail = NULL";

/// A version that was just written.
#[derive(Deserialize)]
pub(super) struct Numbered {
    pub(super) version: u32,
    pub(super) at_us: i64,
    /// The run that works for the session, or worked last.
    pub(super) run_id: RunId,
}

/// The state of a session.
#[derive(Deserialize)]
pub(super) struct SessionState {
    status: SessionStatus,
    version: u32,
    deadline: i64,
    pub(super) completed_at: Option<i64>,
}

impl SessionState {
    /// Status and version at this time. A deadline that has passed counts at once, even if no sweep has ended the session
    /// yet.
    pub(super) fn at(&self, at: i64) -> (SessionStatus, u32) {
        let passed = !self.status.has_ended() && self.deadline <= at;
        let status = if passed {
            SessionStatus::DeadlineExceeded
        } else {
            self.status
        };
        (status, self.version)
    }
}

impl Batch<'_> {
    /// Begins a session with this run, or lets the run refine its plan or work through it. Returns why that is
    /// impossible.
    pub(crate) async fn enter_session(
        &self,
        conn: &mut Conn,
        run: &NewRun,
        place: &InSession,
    ) -> Result<Option<Started>, Fault> {
        static START: LazyLock<Insert> = LazyLock::new(|| SESSION.inserts("ON CONFLICT (id) DO NOTHING"));
        // An earlier commit of the same op, whose acknowledgement was lost, has created the run.
        let is_there = "SELECT id FROM agent_run WHERE id = $1 AND session_id = $2";
        if conn.exists(is_there, values![run.id, place.session]).await? {
            return Ok(None);
        }
        let (tenant, user) = (&run.decision.tenant, &run.decision.user);
        let is_start = matches!(place.work, SessionWork::Start { .. });
        if let Err(exceeded) = self.fits(conn, tenant, user, is_start).await? {
            return Ok(Some(Started::TooManySessions(exceeded)));
        }
        let (enters, version) = match &place.work {
            SessionWork::Start { .. } => {
                START.run(conn, SESSION.begin(run, self.writing)).await?;
                return Ok(None);
            }
            SessionWork::Refine { version } => {
                let refine = sql!(
                    "UPDATE planning_session SET status = 'PLANNING', run_id = $5, refinement_code = NULL, \
                     refinement_detail = NULL, updated_at = $6 WHERE id = $1 AND tenant = $2 AND user_id = $3 \
                     AND version = $4 AND deadline > $6 AND {} RETURNING plan",
                    may_become(Planning)
                );
                (refine, *version)
            }
            SessionWork::Execute { version, .. } => {
                let execute = sql!(
                    "UPDATE planning_session SET status = 'EXECUTING', run_id = $5, started_at = $6, updated_at = $6 \
                     WHERE id = $1 AND tenant = $2 AND user_id = $3 AND version = $4 AND deadline > $6 AND {} \
                     RETURNING plan",
                    may_become(Executing)
                );
                (execute, *version)
            }
        };
        let at = run.decision.created_at;
        let plan: Option<String> = conn
            .one(enters, values![place.session, tenant, user, version, run.id, at])
            .await?;
        let Some(plan) = plan else {
            let found = "SELECT status, version, deadline, completed_at FROM planning_session \
                         WHERE id = $1 AND tenant = $2 AND user_id = $3 @postgres(FOR UPDATE)";
            let found: Option<SessionState> = conn.one(found, values![place.session, tenant, user]).await?;
            return Ok(Some(match found {
                Some(found) => {
                    let (status, version) = found.at(at);
                    Started::SessionMoved(status, version)
                }
                None => Started::NotFound,
            }));
        };
        if let SessionWork::Execute { by, .. } = &place.work {
            let entry = Entry::new(AuditKind::PlanConfirmed, place.session)
                .decision(run.id)
                .by(by)
                .with("version", version)
                .with("plan_sha256", &*hash(&plan));
            self.audit(entry);
        }
        Ok(None)
    }

    /// Whether one more session of this tenant and user can be at work, or the limit that it would exceed.
    pub(crate) async fn fits(
        &self,
        conn: &mut Conn,
        tenant: &TenantId,
        user: &UserId,
        is_start: bool,
    ) -> Result<Result<(), Exceeded>, Fault> {
        /// Sessions that have not ended.
        #[derive(Deserialize)]
        struct Open {
            waits: bool,
            of_tenant: bool,
            of_user: bool,
            count: u64,
        }
        let open = "SELECT status = 'AWAITING_CONFIRMATION' AS waits, tenant = $1 AS of_tenant, \
                    tenant = $1 AND user_id = $2 AS of_user, COUNT(*) AS count \
                    FROM planning_session WHERE completed_at IS NULL GROUP BY 1, 2, 3";
        let (mut at_work, mut waiting) = ([0; 3], [0; 3]);
        for open in conn.all::<Open>(open, values![tenant, user]).await? {
            let used = if open.waits { &mut waiting } else { &mut at_work };
            let counts = [open.of_user, open.of_tenant, true];
            for (used, _) in used.iter_mut().zip(counts).filter(|(_, counts)| *counts) {
                *used += open.count;
            }
        }
        let most = self.config.sessions;
        let mut fits = most.at_work.check(Pool::SessionsAtWork, at_work, 1);
        if is_start {
            fits = fits.and(most.waiting.check(Pool::SessionsWaiting, waiting, 1));
        }
        Ok(fits)
    }

    /// What the end of a run does with its session: a new version, or none. A session that was ended meanwhile, or that
    /// another run works for, stays as it is. `at` is the time of the run's end, if this commit has one.
    pub(crate) async fn plan(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        run: RunId,
        planned: &Planned,
        at: Option<i64>,
    ) -> Result<(), Fault> {
        let made = match planned {
            Planned::Made(made) => made,
            Planned::None(reason, detail) => {
                self.make_no_plan(conn, session, run, *reason, detail, at).await?;
                return Ok(());
            }
        };
        let update = sql!(
            "UPDATE planning_session SET {NEW_VERSION}, updated_at = COALESCE(CAST($6 AS BIGINT), @now) \
             WHERE id = $1 AND run_id = $2 AND {} RETURNING version, updated_at AS at_us, run_id",
            may_become(AwaitingConfirmation)
        );
        let plan = made.plan.to_json();
        let values = values![session, run, plan, made.plan.last, Value::json(&made.notes), at];
        let Some(numbered) = conn.one::<Numbered>(update, values).await? else {
            return Ok(());
        };
        let kind = match numbered.version {
            1 => VersionKind::Proposed,
            _ => VersionKind::Refined,
        };
        self.add_version(conn, session, numbered, kind, made).await
    }

    /// The run of a session has made no plan. True if that changed the session.
    pub(super) async fn make_no_plan(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        run: RunId,
        reason: SessionReason,
        detail: &Arc<str>,
        at: Option<i64>,
    ) -> Result<bool, Fault> {
        let keep = sql!(
            "UPDATE planning_session SET status = 'AWAITING_CONFIRMATION', refinement_code = $4, \
             refinement_detail = $5, updated_at = COALESCE(CAST($6 AS BIGINT), @now) \
             WHERE id = $1 AND run_id = $2 AND (version > 0) = $3 AND {}",
            may_become(AwaitingConfirmation)
        );
        let end = "UPDATE planning_session SET status = $7, status_code = $4, status_detail = $5, \
                   updated_at = COALESCE(CAST($6 AS BIGINT), @now), completed_at = COALESCE(CAST($6 AS BIGINT), @now) \
                   WHERE id = $1 AND run_id = $2 AND (version > 0) = $3 AND status = 'PLANNING'";
        for has_plan in [true, false] {
            let next = SessionStatus::without_plan(reason, has_plan);
            let mut values = values![session, run, has_plan, reason.as_str(), detail, at];
            // The earlier plan remains, or there is none and the session ends.
            let text = match next.has_ended() {
                true => {
                    values.push(next.as_str().into());
                    end
                }
                false => keep,
            };
            if conn.execute(text, values).await? == 1 {
                if next.has_ended() {
                    self.audit_end(session, run, next, Some(reason));
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the version that was just numbered.
    pub(super) async fn add_version(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        numbered: Numbered,
        kind: VersionKind,
        made: &MadePlan,
    ) -> Result<(), Fault> {
        static ADD: LazyLock<Insert> = LazyLock::new(|| VERSION.inserts(""));
        let version = Version {
            version: numbered.version,
            at: Timestamp(numbered.at_us),
            by: made.by.to_string(),
            kind,
            why: made.why.to_string(),
            changes: made.changes.clone(),
            plan_hash: hash(&made.plan.to_json()).to_string(),
            run_id: numbered.run_id,
            plan: made.plan.tasks.clone(),
        };
        let row = (session, version, made.plan.last);
        ADD.run(conn, VERSION.begin(&row, self.writing)).await?;
        Ok(())
    }
}

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
             RETURNING version, updated_at AS at_us, run_id"
        );
        let notes = Value::json(&made.notes);
        let values = values![edit.session, edit.version, plan, made.plan.last, notes, edit.at_us];
        if let Some(numbered) = conn.one::<Numbered>(update, values).await? {
            self.add_version(conn, edit.session, numbered, VersionKind::Edited, made)
                .await?;
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
            may_become(Cancelled)
        );
        let values = values![cancel.session, SessionReason::Cancelled.as_str(), detail, cancel.at_us];
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
            may_become(DeadlineExceeded)
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

    /// Deletes sessions that ended this long ago ([`kept_of`](crate::retention::kept_of)), with the versions of their
    /// plans. Their runs follow, once no session refers to them. True if there may be more.
    pub(crate) async fn prune_planning(&self, conn: &mut Conn, kept: &[Value]) -> Result<bool, Fault> {
        let prunable = sql!(
            "SELECT id FROM planning_session WHERE completed_at IS NOT NULL AND completed_at <= @now - $1 AND {OF} \
             ORDER BY completed_at LIMIT {PRUNED_AT_ONCE} @postgres(FOR UPDATE SKIP LOCKED)"
        );
        let sessions: Vec<PlanningSessionId> = conn.all(prunable, kept.to_vec()).await?;
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
