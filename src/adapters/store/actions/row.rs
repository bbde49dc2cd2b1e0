//! The columns of actions, grants and threads, and the values in them.

use super::super::db::Row;
use super::super::parsed::{opt_parsed, parsed};
use crate::domain::action::{Action, ActionStatus, Details, Grant, Resolution};
use crate::domain::address::Recipients;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, PlanningSessionId, RunId, ThreadId};
use crate::domain::thread::{LatestRun, ThreadSummary, title};
use crate::domain::time::rfc3339;

/// Columns of an action, with its arguments and the details for the approver.
macro_rules! action_columns {
    ($arguments:literal, $details:literal) => {
        concat!(
            "created_at, id, approval_id, run_id, root_id, thread_id, user_id, agent_id, sequence, server, tool, tool_digest, ",
            $arguments,
            ", ",
            $details,
            ", status, expires_at, resolution, resolved_by, reason, grant_id, error_code, model, input_hash, policy, \
             resolved_at, started_at, completed_at, error_message, side_effect, settled_by, \
             (SELECT root.session_id FROM agent_run root WHERE root.id = agent_action.root_id) AS session_id"
        )
    };
}

/// Columns of an action; `created_at` and `id` come first.
pub(in super::super) const ACTION: &str = action_columns!("arguments", "details");

/// The columns for a run's actions. Arguments are read only for actions that are awaiting approval or approved: a long
/// run may have many large ones.
pub(super) const ACTION_OF_RUN: &str = action_columns!(
    "CASE WHEN status IN ('awaiting_confirmation', 'approved') THEN arguments ELSE '{}' END",
    "CASE status WHEN 'awaiting_confirmation' THEN details END"
);

/// Columns of a grant; `created_at` and `id` come first.
pub(in super::super) const GRANT: &str = "created_at, id, user_id, server, tool, recipients, created_by, uses, last_used_at, \
     revoked_at, tool_digest";

/// A column of a thread's latest run; NULL if its runs have been deleted.
macro_rules! latest_run {
    ($what:literal) => {
        concat!(
            "(SELECT ",
            $what,
            " FROM agent_run run WHERE run.thread_id = thread.id ORDER BY run.created_at DESC, run.id DESC LIMIT 1)"
        )
    };
}

/// Columns of a thread in a list; `updated_at` and `id` come first. Each subquery reads one or two rows of an index.
/// Its alias keeps it apart from the columns that the list is ordered by.
pub(in super::super) const THREAD: &str = concat!(
    "updated_at, id, user_id, agent_id, created_at, messages, \
     (SELECT substr(said.body, 1, 1000) FROM thread_message said WHERE said.thread_id = thread.id AND said.role = 'user' \
     ORDER BY said.number LIMIT 1) AS first, ",
    latest_run!("run.id"),
    " AS latest_run_id, ",
    latest_run!("run.status"),
    " AS latest_run_status, ",
    latest_run!(
        "(SELECT CASE MAX(CASE acted.status WHEN 'executing' THEN 2 WHEN 'in_doubt' THEN 1 ELSE 0 END) \
         WHEN 2 THEN 'executing' WHEN 1 THEN 'in_doubt' END FROM agent_action acted WHERE acted.root_id = run.id)"
    ),
    " AS acted"
);

/// A row of [`ACTION`]. Adds to the bytes read so far.
pub(in super::super) fn action(row: &Row, bytes: &mut usize) -> Result<Action, sqlx::Error> {
    let (arguments, details) = (row.text(12)?, row.opt_text(13)?.unwrap_or_default());
    *bytes += arguments.len() + details.len();
    Ok(Action {
        created_at: row.int(0)?,
        id: parsed(row, 1, ActionId::parse)?,
        approval: opt_parsed(row, 2, ApprovalId::parse)?,
        run: parsed(row, 3, RunId::parse)?,
        root: parsed(row, 4, RunId::parse)?,
        thread: opt_parsed(row, 5, ThreadId::parse)?,
        session: opt_parsed(row, 30, PlanningSessionId::parse)?,
        user: row.text(6)?,
        agent: row.text(7)?,
        sequence: row.int(8)?.try_into().unwrap_or(u32::MAX),
        server: row.text(9)?,
        tool: row.text(10)?,
        tool_digest: row.text(11)?,
        arguments: parsed(row, 12, |text| serde_json::from_str(text).ok())?,
        details: self::details(&details),
        status: parsed(row, 14, ActionStatus::parse)?,
        expires_at: row.opt_int(15)?,
        resolution: opt_parsed(row, 16, Resolution::parse)?,
        resolved_by: row.opt_text(17)?,
        reason: row.opt_text(18)?,
        grant: opt_parsed(row, 19, GrantId::parse)?,
        error_code: row.opt_text(20)?,
        model: row.text(21)?,
        input_hash: row.text(22)?,
        policy: row.text(23)?,
        resolved_at: row.opt_int(24)?,
        started_at: row.opt_int(25)?,
        completed_at: row.opt_int(26)?,
        error_message: row.opt_text(27)?,
        side_effect: row.bool(28)?,
        settled_by: row.opt_text(29)?,
    })
}

/// Unreadable details become a warning, and the action becomes ungrantable.
fn details(text: &str) -> Details {
    if text.is_empty() {
        return Details::default();
    }
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, "the details of an approval request are unreadable");
        Details {
            warnings: vec!["the details of this call are unreadable; check all of its arguments".to_owned()],
            ungrantable: true,
            ..Details::default()
        }
    })
}

/// A row of [`GRANT`]. Adds to the bytes read so far.
pub(in super::super) fn grant(row: &Row, bytes: &mut usize) -> Result<Grant, sqlx::Error> {
    let recipients = row.text(5)?;
    // The grant shows them twice.
    *bytes += 2 * recipients.len();
    let recipients = self::recipients(&recipients);
    Ok(Grant {
        created_at: rfc3339(row.int(0)?),
        grant_id: parsed(row, 1, GrantId::parse)?,
        user_id: row.text(2)?,
        server: row.text(3)?,
        tool: row.text(4)?,
        recipients: recipients.all().into_iter().map(str::to_owned).collect(),
        recipients_by_argument: recipients,
        created_by: row.text(6)?,
        uses: row.int(7)?.unsigned_abs(),
        last_used_at: row.opt_int(8)?.map(rfc3339),
        revoked_at: row.opt_int(9)?.map(rfc3339),
        tool_digest: row.text(10)?,
    })
}

/// A grant with unreadable recipients covers no call. It is still listed, so that it can be revoked.
fn recipients(text: &str) -> Recipients {
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, "the recipients of a grant are unreadable, so it covers no call");
        Recipients::default()
    })
}

/// A row of [`THREAD`]. Adds to the bytes read so far.
pub(in super::super) fn thread(row: &Row, bytes: &mut usize) -> Result<ThreadSummary, sqlx::Error> {
    let first = row.opt_text(6)?.unwrap_or_default();
    *bytes += first.len();
    let run = opt_parsed(row, 7, RunId::parse)?.zip(opt_parsed(row, 8, RunStatus::parse)?);
    let acted = opt_parsed(row, 9, ActionStatus::parse)?;
    Ok(ThreadSummary {
        updated_at: rfc3339(row.int(0)?),
        thread_id: parsed(row, 1, ThreadId::parse)?,
        user_id: row.text(2)?,
        agent_id: row.text(3)?,
        created_at: rfc3339(row.int(4)?),
        message_count: row.int(5)?.unsigned_abs(),
        title: title(&first),
        latest_run: run.map(|(run, status)| LatestRun::new(run, status, acted)),
    })
}
