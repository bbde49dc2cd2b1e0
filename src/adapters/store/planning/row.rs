//! The columns of sessions and of the versions of their plans, and the values in them.

use std::sync::Arc;

use super::super::db::Row;
use super::super::parsed::{opt_parsed, parsed};
use super::super::runs::usage;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId, UserId};
use crate::domain::plan::Plan;
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::ports::planning::{PlanVersion, SessionWait, StoredSession, VersionKind, WaitKind};

/// The sum of a count over the runs of a session.
macro_rules! of_runs {
    ($column:literal) => {
        concat!(
            ", (SELECT CAST(COALESCE(SUM(run.",
            $column,
            "), 0) AS BIGINT) FROM agent_run run WHERE run.session_id = planning_session.id) AS ",
            $column
        )
    };
}

/// The columns of a session, in the order of [`session`]; `created_at` and `id` come first, as in every list.
pub(in super::super) const SESSION: &str = concat!(
    "created_at, id, user_id, status, status_code, status_detail, prompt, repo_url, deadline, version, plan, last_task, \
     notes, run_id, refinement_code, refinement_detail, updated_at, completed_at, started_at, cleanup",
    of_runs!("input_tokens"),
    of_runs!("output_tokens"),
    of_runs!("thought_tokens"),
    of_runs!("cached_tokens"),
    of_runs!("steps"),
    ", (SELECT COUNT(*) FROM agent_run run WHERE run.id = planning_session.run_id AND run.completed_at IS NULL) AS at_work",
);

/// A row of [`SESSION`]. Adds to the bytes read so far.
pub(in super::super) fn session(row: &Row, bytes: &mut usize) -> Result<StoredSession, sqlx::Error> {
    for column in [5, 6, 7, 10, 12, 15, 19] {
        *bytes += row.opt_text(column)?.map_or(0, |text| text.len());
    }
    let last = number(row, 11)?;
    Ok(StoredSession {
        id: parsed(row, 1, PlanningSessionId::parse)?,
        user: parsed(row, 2, |text| UserId::parse(text).ok())?,
        status: parsed(row, 3, SessionStatus::parse)?,
        reason: reason(row, 4)?,
        prompt: row.text(6)?.into(),
        repo_url: row.text(7)?.into(),
        deadline_us: row.int(8)?,
        version: number(row, 9)?,
        plan: opt_parsed(row, 10, |text| Plan::read(text, last).ok())?.unwrap_or_default(),
        notes: opt_parsed(row, 12, |text| serde_json::from_str(text).ok())?.unwrap_or_default(),
        run: parsed(row, 13, RunId::parse)?,
        refinement_failed: reason(row, 14)?,
        usage: usage(row, 20)?,
        model_calls: row.int(24)?.unsigned_abs(),
        created_us: row.int(0)?,
        updated_us: row.int(16)?,
        started_us: row.opt_int(18)?,
        completed_us: row.opt_int(17)?,
        is_at_work: row.int(25)? > 0,
        cleanup: opt_parsed(row, 19, |text| serde_json::from_str(text).ok())?,
    })
}

/// The columns of a version of a plan, in the order of [`version`].
pub(super) const VERSION: &str = "version, at, by_name, kind, why, changes, hash, run_id, plan, last_task";

/// A row of [`VERSION`].
pub(super) fn version(row: &Row) -> Result<PlanVersion, sqlx::Error> {
    let last = number(row, 9)?;
    Ok(PlanVersion {
        version: number(row, 0)?,
        at_us: row.int(1)?,
        by: row.text(2)?.into(),
        kind: parsed(row, 3, VersionKind::parse)?,
        why: row.text(4)?.into(),
        changes: parsed(row, 5, |text| serde_json::from_str(text).ok())?,
        hash: row.text(6)?.into(),
        run: opt_parsed(row, 7, RunId::parse)?,
        plan: parsed(row, 8, |text| Plan::read(text, last).ok())?,
    })
}

/// The columns of what a session waits for, in the order of [`wait`].
pub(super) const WAIT: &str = "action.id, action.run_id, action.tool, action.status, action.approval_id";

/// A row of [`WAIT`].
pub(super) fn wait(row: &Row) -> Result<SessionWait, sqlx::Error> {
    let kind = match parsed(row, 3, ActionStatus::parse)? {
        ActionStatus::InDoubt => WaitKind::InDoubt,
        _ => WaitKind::Approval(parsed(row, 4, ApprovalId::parse)?),
    };
    Ok(SessionWait {
        kind,
        action: parsed(row, 0, ActionId::parse)?,
        run: parsed(row, 1, RunId::parse)?,
        tool: row.text(2)?.into(),
    })
}

/// A reason from two columns: its code and its details.
fn reason(row: &Row, column: usize) -> Result<Option<(SessionReason, Arc<str>)>, sqlx::Error> {
    let code = opt_parsed(row, column, SessionReason::parse)?;
    Ok(code.zip(row.opt_text(column + 1)?.map(Arc::from)))
}

/// A number of a version or of a task, or a count of sessions.
pub(super) fn number(row: &Row, column: usize) -> Result<u32, sqlx::Error> {
    Ok(row.int(column)?.try_into().unwrap_or(u32::MAX))
}
