//! Reads of actions, grants and threads.

use super::super::ReadOnly;
use super::super::db::{sql, values};
use super::super::read::OF_USER;
use super::columns::{ACTION, LINE};
use crate::api::threads::Thread;
use crate::domain::action::Action;
use crate::domain::ids::{RunId, TenantId, ThreadId, UserId};
use crate::ports::records::QueryError;

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
