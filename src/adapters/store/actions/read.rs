//! Reads of actions, grants and threads.

use std::ops::ControlFlow;

use super::super::db::{Row, Value};
use super::super::parsed::{opt_parsed, parsed};
use super::super::{ReadOnly, Store};
use super::line::Line;
use super::row::{ACTION, ACTION_OF_RUN, GRANT, action, grant};
use crate::domain::action::{Action, Grant};
use crate::domain::ids::{ActionId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::{Thread, ThreadMessage};
use crate::domain::time::rfc3339;
use crate::ports::records::{QueryError, RecordError};

const MESSAGE: &str = "number, role, body, run_id, action_id, created_at";

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
    pub(in super::super) async fn one<T: Send>(
        &self,
        mut sql: String,
        id: &str,
        tenant: &TenantId,
        user: Option<&UserId>,
        shape: fn(&Row, &mut usize) -> Result<T, sqlx::Error>,
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
