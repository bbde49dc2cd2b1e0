//! What the runs of a session do with it: it begins with a run, a run refines its plan or works through it, and the end
//! of a run that plans moves it on.

use std::sync::Arc;

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::db::{Conn, Row, Value};
use super::super::error::Fault;
use super::super::runs::{each, id, int, parse};
use super::PlanningStatements;
use crate::domain::budget::{Exceeded, Pool};
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::plan::{Change, Plan};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::ports::commit::Planned;
use crate::ports::planning::{MadePlan, VersionKind};
use crate::ports::runs::{Created, InSession, NewRun, SessionWork};
use sha2::{Digest, Sha256};

impl Batch<'_> {
    pub(super) fn planning_texts(&self) -> &PlanningStatements {
        &self.statements.planning
    }

    /// Begins a session with this run, or lets the run refine its plan or work through it. Returns why that is
    /// impossible.
    pub(in super::super) async fn enter_session(
        &self,
        conn: &mut Conn,
        run: &NewRun,
        place: &InSession,
    ) -> Result<Option<Created>, Fault> {
        let texts = self.planning_texts();
        // An earlier commit of the same op, whose acknowledgement was lost, has created the run.
        let there = vec![id(run.id), id(place.session)];
        if conn.first(&texts.is_there, there).await?.is_some() {
            return Ok(None);
        }
        let at = run.decision.created_at;
        let session = vec![
            id(place.session),
            Value::text(run.decision.tenant.as_str()),
            Value::text(run.decision.user.as_str()),
        ];
        let of = [run.decision.tenant.as_str(), run.decision.user.as_str()];
        let is_start = matches!(place.work, SessionWork::Start { .. });
        if let Err(exceeded) = self.fits(conn, of, is_start).await? {
            return Ok(Some(Created::TooManySessions(exceeded)));
        }
        let mut values = session.clone();
        let (text, version) = match &place.work {
            SessionWork::Start {
                prompt,
                repo_url,
                deadline_us,
            } => {
                values.extend([Value::shared(prompt), Value::shared(repo_url), int(*deadline_us)]);
                values.extend([id(run.id), int(at)]);
                conn.execute(&texts.start, values).await?;
                return Ok(None);
            }
            SessionWork::Refine { version } => (&texts.refine, *version),
            SessionWork::Execute { version, .. } => (&texts.execute, *version),
        };
        values.extend([int(i64::from(version)), id(run.id), int(at)]);
        let Some(row) = conn.first(text, values).await? else {
            return self.is_not_entered(conn, run, session).await.map(Some);
        };
        if let SessionWork::Execute { by, .. } = &place.work {
            let entry = Entry::new(AuditKind::PlanConfirmed, place.session)
                .decision(run.id)
                .by(by)
                .with("version", version)
                .with("plan_sha256", hash(&row.text(0)?));
            self.audit(entry);
        }
        Ok(None)
    }

    /// Whether one more session of this tenant and user can be at work, or the limit that it would exceed.
    pub(in super::super) async fn fits(
        &self,
        conn: &mut Conn,
        of: [&str; 2],
        is_start: bool,
    ) -> Result<Result<(), Exceeded>, Fault> {
        let values = of.map(Value::text);
        let (mut at_work, mut waiting) = ([0; 3], [0; 3]);
        each(conn, &self.planning_texts().open, values.into(), |row| {
            let used = if row.bool(0)? { &mut waiting } else { &mut at_work };
            let counts = [row.bool(2)?, row.bool(1)?, true];
            for (used, _) in used.iter_mut().zip(counts).filter(|(_, counts)| *counts) {
                *used += row.int(3)?.unsigned_abs();
            }
            Ok(())
        })
        .await?;
        let most = self.sessions;
        let mut fits = most.at_work.check(Pool::SessionsAtWork, at_work, 1);
        if is_start {
            fits = fits.and(most.waiting.check(Pool::SessionsWaiting, waiting, 1));
        }
        Ok(fits)
    }

    /// Why a run does not enter an existing session.
    async fn is_not_entered(&self, conn: &mut Conn, run: &NewRun, session: Vec<Value>) -> Result<Created, Fault> {
        Ok(match conn.first(&self.planning_texts().place, session).await? {
            Some(row) => {
                let (status, version) = moved(&row, run.decision.created_at)?;
                Created::SessionMoved(status, version)
            }
            None => Created::NoSession,
        })
    }

    /// What the end of a run does with its session: a new version, or none. A session that was ended meanwhile, or that
    /// another run works for, stays as it is. `at` is the time of the run's end, if this commit has one.
    pub(in super::super) async fn plan(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        run: RunId,
        planned: &Planned,
        at: Option<i64>,
    ) -> Result<(), Fault> {
        match planned {
            Planned::Made(made) => {
                let mut values = vec![id(session), id(run)];
                values.extend(version(made)?);
                values.push(Value::Int(at));
                let Some(row) = conn.first(&self.planning_texts().made, values).await? else {
                    return Ok(());
                };
                let kind = match row.int(0)? {
                    1 => VersionKind::Proposed,
                    _ => VersionKind::Refined,
                };
                self.add_version(conn, session, &row, &NewVersion::of(made, kind, Some(run)))
                    .await
            }
            Planned::None(reason, detail) => self
                .make_no_plan(conn, session, run, *reason, detail, at)
                .await
                .map(drop),
        }
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
        for has_plan in [true, false] {
            let mut values = vec![
                id(session),
                id(run),
                Value::Bool(has_plan),
                Value::text(reason.as_str()),
                Value::shared(detail),
                Value::Int(at),
            ];
            let next = SessionStatus::without_plan(reason, has_plan);
            let text = match next.has_ended() {
                true => {
                    values.push(Value::text(next.as_str()));
                    &self.planning_texts().end
                }
                false => &self.planning_texts().stand,
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

    /// Adds the row of a version that was just written. `row`: its number and its time.
    pub(super) async fn add_version(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        row: &Row,
        version: &NewVersion<'_>,
    ) -> Result<(), Fault> {
        let plan = version.plan.to_json();
        let changes =
            serde_json::to_string(version.changes).map_err(|error| Fault::Refused(error.to_string().into()))?;
        let values = vec![
            id(session),
            int(row.int(0)?),
            int(row.int(1)?),
            Value::text(version.by),
            Value::text(version.kind.as_str()),
            Value::shared(version.why),
            Value::text(&changes),
            Value::text(&hash(&plan)),
            version.run.map_or(Value::Text(None), id),
            Value::text(&plan),
            int(i64::from(version.plan.last)),
        ];
        conn.execute(&self.planning_texts().add_version, values).await?;
        Ok(())
    }
}

/// A version of a plan, as its row says it.
pub(super) struct NewVersion<'a> {
    pub(super) plan: &'a Plan,
    pub(super) by: &'a str,
    pub(super) kind: VersionKind,
    pub(super) why: &'a Arc<str>,
    pub(super) changes: &'a [Change],
    /// The run that made it; `None` if a person edited it.
    pub(super) run: Option<RunId>,
}

impl<'a> NewVersion<'a> {
    pub(super) fn of(made: &'a MadePlan, kind: VersionKind, run: Option<RunId>) -> Self {
        Self {
            plan: &made.plan,
            by: &made.by,
            kind,
            why: &made.why,
            changes: &made.changes,
            run,
        }
    }
}

/// The values of a new version in the session's row: plan, last task, notes.
pub(super) fn version(made: &MadePlan) -> Result<[Value; 3], Fault> {
    let notes = serde_json::to_string(&made.notes).map_err(|error| Fault::Refused(error.to_string().into()))?;
    Ok([
        Value::text(&made.plan.to_json()),
        int(i64::from(made.plan.last)),
        Value::text(&notes),
    ])
}

/// Hex SHA-256 of a plan.
pub(super) fn hash(plan: &str) -> String {
    hex::encode(Sha256::digest(plan))
}

/// Status and version from the first columns of a row, at this time. A deadline that has passed counts at once, even if
/// no sweep has ended the session yet.
pub(super) fn moved(row: &Row, at: i64) -> Result<(SessionStatus, u32), Fault> {
    let status = parse(&row.text(0)?, SessionStatus::parse)?;
    let passed = !status.has_ended() && row.int(2)? <= at;
    let status = if passed {
        SessionStatus::DeadlineExceeded
    } else {
        status
    };
    Ok((status, row.int(1)?.try_into().unwrap_or(u32::MAX)))
}
