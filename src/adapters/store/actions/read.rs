//! Reads of actions, grants and threads.

use std::ops::ControlFlow;

use super::super::db::{Row, Value};
use super::super::read::{Shape, rfc3339};
use super::super::runs::{opt_parsed, parsed};
use super::super::{ReadOnly, Store};
use super::line::Line;
use crate::domain::action::{Action, ActionStatus, Details, Grant, Resolution};
use crate::domain::address::Recipients;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::{LatestRun, Thread, ThreadMessage, ThreadSummary, title};
use crate::ports::records::{QueryError, RecordError};

/// Columns of an action, with its arguments and the details for the approver.
macro_rules! action_columns {
    ($arguments:literal, $details:literal) => {
        concat!(
            "created_at, id, approval_id, run_id, root_id, thread_id, user_id, project_id, agent_id, sequence, server, tool, \
             tool_digest, ",
            $arguments,
            ", ",
            $details,
            ", status, expires_at, resolution, resolved_by, reason, grant_id, error_code, model, input_hash, policy, \
             resolved_at, started_at, completed_at, error_message, side_effect, settled_by"
        )
    };
}

/// Columns of an action; `created_at` and `id` come first.
pub(in super::super) const ACTION: &str = action_columns!("arguments", "details");

/// The columns for a run's actions. Arguments are read only for actions that are awaiting approval or approved: a long
/// run may have many large ones.
const ACTION_OF_RUN: &str = action_columns!(
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

const MESSAGE: &str = "number, role, body, run_id, action_id, created_at";

/// A row of [`ACTION`]. Adds to the bytes read so far.
pub(in super::super) fn action(row: &Row, bytes: &mut usize) -> Result<Action, sqlx::Error> {
    let (arguments, details) = (row.text(13)?, row.opt_text(14)?.unwrap_or_default());
    *bytes += arguments.len() + details.len();
    Ok(Action {
        created_at: row.int(0)?,
        id: parsed(row, 1, ActionId::parse)?,
        approval: opt_parsed(row, 2, ApprovalId::parse)?,
        run: parsed(row, 3, RunId::parse)?,
        root: parsed(row, 4, RunId::parse)?,
        thread: opt_parsed(row, 5, ThreadId::parse)?,
        user: row.text(6)?,
        project: row.text(7)?,
        agent: row.text(8)?,
        sequence: row.int(9)?.try_into().unwrap_or(u32::MAX),
        server: row.text(10)?,
        tool: row.text(11)?,
        tool_digest: row.text(12)?,
        arguments: parsed(row, 13, |text| serde_json::from_str(text).ok())?,
        details: self::details(&details),
        status: parsed(row, 15, ActionStatus::parse)?,
        expires_at: row.opt_int(16)?,
        resolution: opt_parsed(row, 17, Resolution::parse)?,
        resolved_by: row.opt_text(18)?,
        reason: row.opt_text(19)?,
        grant: opt_parsed(row, 20, GrantId::parse)?,
        error_code: row.opt_text(21)?,
        model: row.text(22)?,
        input_hash: row.text(23)?,
        policy: row.text(24)?,
        resolved_at: row.opt_int(25)?,
        started_at: row.opt_int(26)?,
        completed_at: row.opt_int(27)?,
        error_message: row.opt_text(28)?,
        side_effect: row.bool(29)?,
        settled_by: row.opt_text(30)?,
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

fn message(row: &Row) -> Result<ThreadMessage, sqlx::Error> {
    let line = parsed(row, 1, Line::parse)?;
    Ok(ThreadMessage {
        number: row.int(0)?.unsigned_abs(),
        role: line.role(),
        kind: line.kind(),
        text: row.text(2)?,
        run_id: parsed(row, 3, RunId::parse)?,
        action_id: opt_parsed(row, 4, ActionId::parse)?,
        created_at: rfc3339(row.int(5)?),
    })
}

impl ReadOnly {
    /// All actions of a run and, for an outermost run, of its child runs, in order. Arguments are filled for actions
    /// that are awaiting approval or approved, details only for actions that are awaiting approval.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn actions_of(&self, root: RunId) -> Result<Vec<Action>, QueryError> {
        let sql = format!(
            "SELECT {ACTION_OF_RUN} FROM agent_action WHERE root_id = $1 OR run_id = $1 ORDER BY created_at, run_id, sequence"
        );
        let mut actions = Vec::new();
        let each = &mut |row: Row| {
            actions.push(action(&row, &mut 0)?);
            Ok(ControlFlow::Continue(()))
        };
        self.rows(sql.into(), vec![Value::text(&root.to_string())], each)
            .await?;
        Ok(actions)
    }

    /// A thread with its latest messages before number `before`, in order; `None` when the tenant (or the given user)
    /// has no such thread.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn thread(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        thread: ThreadId,
        before: Option<u64>,
        most: u32,
    ) -> Result<Option<Thread>, QueryError> {
        let mut sql = "SELECT user_id, agent_id, created_at, updated_at, messages FROM thread WHERE id = $1 \
                       AND tenant = $2"
            .to_owned();
        let mut values = vec![Value::text(&thread.to_string()), Value::text(tenant.as_str())];
        if let Some(user) = user {
            sql.push_str(" AND user_id = $3");
            values.push(Value::text(user.as_str()));
        }
        let mut found = None;
        let each = &mut |row: Row| {
            found = Some(Thread {
                thread_id: thread,
                user_id: row.text(0)?,
                agent_id: row.text(1)?,
                created_at: rfc3339(row.int(2)?),
                updated_at: rfc3339(row.int(3)?),
                messages: Vec::new(),
                message_count: row.int(4)?.unsigned_abs(),
            });
            Ok(ControlFlow::Break(()))
        };
        self.rows(sql.into(), values, each).await?;
        if let Some(found) = &mut found {
            found.messages = self.said(thread, before, most).await?;
        }
        Ok(found)
    }

    /// The latest messages before a number, in order.
    async fn said(&self, thread: ThreadId, before: Option<u64>, most: u32) -> Result<Vec<ThreadMessage>, QueryError> {
        let sql = format!(
            "SELECT {MESSAGE} FROM thread_message WHERE thread_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3"
        );
        let before = before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
        let values = vec![
            Value::text(&thread.to_string()),
            Value::Int(Some(before)),
            Value::Int(Some(i64::from(most))),
        ];
        let mut messages = Vec::new();
        let each = &mut |row: Row| {
            messages.push(message(&row)?);
            Ok(ControlFlow::Continue(()))
        };
        self.rows(sql.into(), values, each).await?;
        messages.reverse();
        Ok(messages)
    }
}

impl Store {
    pub(super) async fn one_action(
        &self,
        by: &'static str,
        id: String,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> Result<Option<Action>, QueryError> {
        let sql = format!("SELECT {ACTION} FROM agent_action WHERE {by} = $1 AND tenant = $2");
        self.one(sql, &id, tenant, user, action).await
    }

    pub(super) async fn one_grant(
        &self,
        id: GrantId,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> Result<Option<Grant>, QueryError> {
        let sql = format!("SELECT {GRANT} FROM approval_grant WHERE id = $1 AND tenant = $2");
        self.one(sql, &id.to_string(), tenant, user, grant).await
    }

    /// The row of an id in a tenant, if it belongs to the given user.
    async fn one<T: Send>(
        &self,
        mut sql: String,
        id: &str,
        tenant: &TenantId,
        user: Option<&UserId>,
        shape: Shape<T>,
    ) -> Result<Option<T>, QueryError> {
        let mut values = vec![Value::text(id), Value::text(tenant.as_str())];
        if let Some(user) = user {
            sql.push_str(" AND user_id = $3");
            values.push(Value::text(user.as_str()));
        }
        let mut found = None;
        let each = &mut |row: Row| {
            found = Some(shape(&row, &mut 0)?);
            Ok(ControlFlow::Break(()))
        };
        self.working.rows(sql.into(), values, each).await?;
        Ok(found)
    }

    /// Outermost runs with an approval request that has expired, oldest first.
    pub(super) async fn expired(&self, most: u32) -> Result<Vec<RunId>, RecordError> {
        let now = self.shared.target.dialect().now();
        let sql = format!(
            "SELECT root_id FROM agent_action WHERE status = 'awaiting_confirmation' AND expires_at <= {now} \
             ORDER BY expires_at LIMIT $1"
        );
        let mut roots: Vec<RunId> = Vec::new();
        let each = &mut |row: Row| {
            let root = parsed(&row, 0, RunId::parse)?;
            if !roots.contains(&root) {
                roots.push(root);
            }
            Ok(ControlFlow::Continue(()))
        };
        let read = self
            .working
            .rows(sql.into(), vec![Value::Int(Some(i64::from(most)))], each)
            .await;
        read.map_err(|error| RecordError::Unavailable(error.to_string().into()))?;
        Ok(roots)
    }

    pub(super) async fn live_grants(
        &self,
        tenant: &TenantId,
        user: &UserId,
        server: &str,
        tool: &str,
    ) -> Result<Vec<Grant>, QueryError> {
        let sql = format!(
            "SELECT {GRANT} FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND server = $3 AND tool = $4 \
             AND revoked_at IS NULL ORDER BY created_at, id"
        );
        let values = [tenant.as_str(), user.as_str(), server, tool].map(Value::text).to_vec();
        let mut grants = Vec::new();
        let each = &mut |row: Row| {
            grants.push(grant(&row, &mut 0)?);
            Ok(ControlFlow::Continue(()))
        };
        self.working.rows(sql.into(), values, each).await?;
        Ok(grants)
    }

    pub(super) async fn said_before(&self, run: RunId, most: u32) -> Result<Vec<ThreadMessage>, QueryError> {
        let mut own = None;
        let each = &mut |row: Row| {
            own = Some((parsed(&row, 0, ThreadId::parse)?, row.int(1)?.unsigned_abs()));
            Ok(ControlFlow::Break(()))
        };
        let sql = "SELECT thread_id, number FROM thread_message WHERE run_id = $1 AND role = 'user'";
        self.working
            .rows(sql.into(), vec![Value::text(&run.to_string())], each)
            .await?;
        match own {
            // Ordered by run: a queued message is stored before the answers that arrive meanwhile, and is answered
            // after them.
            Some((thread, number)) => {
                let sql = format!(
                    "SELECT {MESSAGE} FROM (SELECT message.*, began.number AS began FROM (SELECT run_id, number \
                     FROM thread_message WHERE thread_id = $1 AND role = 'user' AND number < $2 \
                     ORDER BY number DESC LIMIT $3) AS began \
                     JOIN thread_message message ON message.run_id = began.run_id AND message.thread_id = $1 \
                     ORDER BY began.number DESC, message.number DESC LIMIT $3) AS said ORDER BY began, number"
                );
                let values = vec![
                    Value::text(&thread.to_string()),
                    Value::Int(i64::try_from(number).ok()),
                    Value::Int(Some(i64::from(most))),
                ];
                let mut said = Vec::new();
                let each = &mut |row: Row| {
                    said.push(message(&row)?);
                    Ok(ControlFlow::Continue(()))
                };
                self.working.rows(sql.into(), values, each).await?;
                Ok(said)
            }
            None => Ok(Vec::new()),
        }
    }

    pub(super) async fn next_in_thread(&self, run: RunId) -> Result<Option<RunId>, QueryError> {
        let sql = "SELECT other.id, other.status FROM agent_run run JOIN agent_run other ON other.thread_id = run.thread_id \
                   WHERE run.id = $1 AND (other.status = 'queued' OR other.status = 'running' \
                   OR other.status = 'awaiting_confirmation') \
                   ORDER BY CASE other.status WHEN 'queued' THEN 1 ELSE 0 END, other.created_at, other.id LIMIT 1";
        let mut next = None;
        let each = &mut |row: Row| {
            if row.text(1)? == "queued" {
                next = Some(parsed(&row, 0, RunId::parse)?);
            }
            Ok(ControlFlow::Break(()))
        };
        self.working
            .rows(sql.into(), vec![Value::text(&run.to_string())], each)
            .await?;
        Ok(next)
    }
}
