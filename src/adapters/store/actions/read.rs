//! Reads of actions, grants and threads.

use serde::Deserialize;

use super::super::db::{sql, values};
use super::super::read::OF_USER;
use super::super::{ReadOnly, Store};
use super::columns::{ACTION, GRANT, LINE};
use crate::domain::action::{Action, Grant};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::{Thread, ThreadMessage};
use crate::ports::records::{QueryError, RecordError};

impl ReadOnly {
    /// All actions of a run and, for an outermost run, of its child runs, in order. Arguments are filled for actions
    /// that are awaiting approval or approved, details only for actions that are awaiting approval.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn actions_of(&self, root: RunId) -> Result<Vec<Action>, QueryError> {
        // A long run may have many large arguments.
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE root_id = $1 OR run_id = $1 ORDER BY created_at, run_id, sequence",
            ACTION
                .selected()
                .replace(
                    "arguments AS",
                    "CASE WHEN status IN ('awaiting_confirmation', 'approved') THEN arguments ELSE '{}' END AS"
                )
                .replace(
                    "details AS",
                    "CASE status WHEN 'awaiting_confirmation' THEN details END AS"
                )
        );
        self.all(sql, values![root]).await
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
        let sql = sql!(
            "SELECT id AS \"threadId\", user_id AS \"userId\", agent_id AS \"agentId\", created_at AS \"createdAt\", \
             updated_at AS \"updatedAt\", messages AS \"messageCount\" FROM thread WHERE id = $1 AND {OF_USER}"
        );
        let found: Option<Thread> = self.one(sql, values![thread, tenant, user]).await?;
        let Some(mut found) = found else { return Ok(None) };
        let latest = sql!(
            "SELECT {} FROM thread_message WHERE thread_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3",
            LINE.selected_in_camel_case()
        );
        let values = values![thread, before.unwrap_or(u64::MAX), most];
        found.messages = self.all(latest, values).await?;
        found.messages.reverse();
        Ok(Some(found))
    }
}

impl Store {
    pub(super) async fn one_action(
        &self,
        id: ActionId,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> Result<Option<Action>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE id = $1 AND {OF_USER}",
            ACTION.selected()
        );
        self.working.one(sql, values![id, tenant, user]).await
    }

    pub(super) async fn action_of_approval(
        &self,
        approval: ApprovalId,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> Result<Option<Action>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE approval_id = $1 AND {OF_USER}",
            ACTION.selected()
        );
        self.working.one(sql, values![approval, tenant, user]).await
    }

    pub(super) async fn one_grant(
        &self,
        id: GrantId,
        tenant: &TenantId,
        user: Option<&UserId>,
    ) -> Result<Option<Grant>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM approval_grant WHERE id = $1 AND {OF_USER}",
            GRANT.selected_in_camel_case()
        );
        self.working.one(sql, values![id, tenant, user]).await
    }

    /// Outermost runs with an approval request that has expired, oldest first.
    pub(super) async fn expired(&self, most: u32) -> Result<Vec<RunId>, RecordError> {
        let sql = "SELECT root_id FROM agent_action WHERE status = 'awaiting_confirmation' AND expires_at <= @now \
                   ORDER BY expires_at LIMIT $1";
        let found = self.working.all(sql, values![most]).await;
        let found: Vec<RunId> = found.map_err(|error| RecordError::Unavailable(error.to_string().into()))?;
        let mut roots = Vec::new();
        for root in found {
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        Ok(roots)
    }

    pub(super) async fn live_grants(
        &self,
        tenant: &TenantId,
        user: &UserId,
        server: &str,
        tool: &str,
    ) -> Result<Vec<Grant>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND server = $3 AND tool = $4 \
             AND revoked_at IS NULL ORDER BY created_at, id",
            GRANT.selected_in_camel_case()
        );
        self.working.all(sql, values![tenant, user, server, tool]).await
    }

    pub(super) async fn said_before(&self, run: RunId, most: u32) -> Result<Vec<ThreadMessage>, QueryError> {
        #[derive(Deserialize)]
        struct Own {
            thread_id: ThreadId,
            number: i64,
        }
        let own = "SELECT thread_id, number FROM thread_message WHERE run_id = $1 AND role = 'user'";
        let own: Option<Own> = self.working.one(own, values![run]).await?;
        let Some(Own { thread_id, number }) = own else {
            return Ok(Vec::new());
        };
        // Ordered by run: a queued message is stored before the answers that arrive meanwhile, and is answered after
        // them.
        let sql = sql!(
            "SELECT {} FROM (SELECT message.*, began.number AS began FROM (SELECT run_id, number \
             FROM thread_message WHERE thread_id = $1 AND role = 'user' AND number < $2 \
             ORDER BY number DESC LIMIT $3) AS began \
             JOIN thread_message message ON message.run_id = began.run_id AND message.thread_id = $1 \
             ORDER BY began.number DESC, message.number DESC LIMIT $3) AS said ORDER BY began, number",
            LINE.selected_in_camel_case()
        );
        self.working.all(sql, values![thread_id, number, most]).await
    }

    pub(super) async fn next_in_thread(&self, run: RunId) -> Result<Option<RunId>, QueryError> {
        #[derive(Deserialize)]
        struct Other {
            id: RunId,
            status: RunStatus,
        }
        let sql = "SELECT other.id, other.status FROM agent_run run JOIN agent_run other ON other.thread_id = run.thread_id \
                   WHERE run.id = $1 AND (other.status = 'queued' OR other.status = 'running' \
                   OR other.status = 'awaiting_confirmation') \
                   ORDER BY CASE other.status WHEN 'queued' THEN 1 ELSE 0 END, other.created_at, other.id LIMIT 1";
        let next: Option<Other> = self.working.one(sql, values![run]).await?;
        let is_queued = |other: &Other| other.status == RunStatus::Queued;
        Ok(next.filter(is_queued).map(|other| other.id))
    }
}
