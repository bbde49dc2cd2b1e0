//! What the runs of a session do with it: it begins with a run, a run refines its plan or works through it, and the end
//! of a run that plans moves it on.

use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use super::super::insert::Insert;
use super::super::transition::session_may_become;
use super::columns::{SESSION, VERSION};
use crate::api::planning::{Version, VersionKind};
use crate::domain::budget::{Exceeded, Pool};
use crate::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use crate::domain::planning_session::SessionReason;
use crate::domain::planning_session::SessionStatus::{self, AwaitingConfirmation, Executing, Planning};
use crate::domain::time::Timestamp;
use crate::ports::commit::Planned;
use crate::ports::planning::MadePlan;
use crate::ports::runs::{Created, InSession, NewRun, SessionWork};
use crate::queue::Batch;

/// What the author of a new version (plan `$3`, last task `$4`, notes `$5`) leaves behind: nothing of an earlier end or
/// failure.
pub(super) const NEW_VERSION: &str = "status = 'AWAITING_CONFIRMATION', version = version + 1, plan = $3, last_task = $4, \
     notes = $5, status_code = NULL, status_detail = NULL, refinement_code = NULL, refinement_detail = NULL";

/// A version that was just written.
#[derive(Deserialize)]
pub(super) struct Numbered {
    pub(super) version: u32,
    pub(super) at_us: i64,
}

impl Numbered {
    pub(super) fn into_version(self, made: &MadePlan, kind: VersionKind, run: Option<RunId>) -> Version {
        Version {
            version: self.version,
            at: Timestamp(self.at_us),
            by: made.by.to_string(),
            kind,
            why: made.why.to_string(),
            changes: made.changes.clone(),
            plan_hash: hash(&made.plan.to_json()),
            run_id: run,
            plan: made.plan.tasks.clone(),
        }
    }
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
    ) -> Result<Option<Created>, Fault> {
        static START: LazyLock<Insert> = LazyLock::new(|| SESSION.inserts("ON CONFLICT (id) DO NOTHING"));
        // An earlier commit of the same op, whose acknowledgement was lost, has created the run.
        let is_there = "SELECT id FROM agent_run WHERE id = $1 AND session_id = $2";
        if conn.exists(is_there, values![run.id, place.session]).await? {
            return Ok(None);
        }
        let (tenant, user) = (&run.decision.tenant, &run.decision.user);
        let is_start = matches!(place.work, SessionWork::Start { .. });
        if let Err(exceeded) = self.fits(conn, tenant, user, is_start).await? {
            return Ok(Some(Created::TooManySessions(exceeded)));
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
                    session_may_become(Planning)
                );
                (refine, *version)
            }
            SessionWork::Execute { version, .. } => {
                let execute = sql!(
                    "UPDATE planning_session SET status = 'EXECUTING', run_id = $5, started_at = $6, updated_at = $6 \
                     WHERE id = $1 AND tenant = $2 AND user_id = $3 AND version = $4 AND deadline > $6 AND {} \
                     RETURNING plan",
                    session_may_become(Executing)
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
                    Created::SessionMoved(status, version)
                }
                None => Created::NoSession,
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
        let most = self.sessions;
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
             WHERE id = $1 AND run_id = $2 AND {} RETURNING version, updated_at AS at_us",
            session_may_become(AwaitingConfirmation)
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
        self.add_version(
            conn,
            session,
            numbered.into_version(made, kind, Some(run)),
            made.plan.last,
        )
        .await
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
            session_may_become(AwaitingConfirmation)
        );
        let end = "UPDATE planning_session SET status = $7, status_code = $4, status_detail = $5, \
                   updated_at = COALESCE(CAST($6 AS BIGINT), @now), completed_at = COALESCE(CAST($6 AS BIGINT), @now) \
                   WHERE id = $1 AND run_id = $2 AND (version > 0) = $3 AND status = 'PLANNING'";
        for has_plan in [true, false] {
            let next = SessionStatus::without_plan(reason, has_plan);
            let mut values = values![session, run, has_plan, reason, detail, at];
            // The earlier plan remains, or there is none and the session ends.
            let text = match next.has_ended() {
                true => {
                    values.push(next.into());
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

    pub(super) async fn add_version(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        version: Version,
        last: u32,
    ) -> Result<(), Fault> {
        static ADD: LazyLock<Insert> = LazyLock::new(|| VERSION.inserts(""));
        ADD.run(conn, VERSION.begin(&(session, version, last), self.writing))
            .await?;
        Ok(())
    }
}

/// Hex SHA-256 of a plan.
pub(super) fn hash(plan: &str) -> String {
    hex::encode(Sha256::digest(plan))
}
