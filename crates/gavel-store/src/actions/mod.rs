//! Actions, grants and threads: port [`Actions`]. `requests`, `resolve`, `settle` and `thread` write in the writer's
//! transaction, `columns` are their columns. `read` has the reads of commands, too. Reads here use connections that analysts do not use.
//!
//! Every change of an action first locks its outermost run. So of two concurrent changes the second sees the first.

mod columns;
mod read;
mod requests;
mod resolve;
mod settle;
mod thread;

pub(super) use columns::{ACTION, GRANT, THREAD};

use serde::Deserialize;

use self::columns::LINE;
use super::Store;
use super::db::{sql, values};
use super::error::unavailable;
use super::op::Op;
use super::read::OF_USER;
use crate::api::approvals::Grant;
use crate::api::threads::{Thread, ThreadMessage, ThreadSummary};
use crate::domain::action::Action;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::ports::BoxFuture;
use crate::ports::actions::{ActionQuery, Actions, Resolve, Resolved, Revoke, Settle, SettleDone};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};

impl Actions for Store {
    fn list<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ActionQuery,
    ) -> BoxFuture<'a, Result<Page<Action>, QueryError>> {
        Box::pin(self.reading.actions(tenant, query))
    }

    fn of_approval<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        approval: ApprovalId,
    ) -> BoxFuture<'a, Result<Option<Action>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE approval_id = $1 AND {OF_USER}",
            ACTION.selected()
        );
        Box::pin(self.working.one(sql, values![approval, tenant, user]))
    }

    fn action<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        action: ActionId,
    ) -> BoxFuture<'a, Result<Option<Action>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE id = $1 AND {OF_USER}",
            ACTION.selected()
        );
        Box::pin(self.working.one(sql, values![action, tenant, user]))
    }

    fn of_run(&self, root: RunId) -> BoxFuture<'_, Result<Vec<Action>, QueryError>> {
        Box::pin(self.working.actions_of(root))
    }

    fn resolve(&self, resolve: Resolve) -> BoxFuture<'_, Result<Resolved, RecordError>> {
        Box::pin(self.write(Op::Resolve(resolve)))
    }

    fn settle(&self, settle: Settle) -> BoxFuture<'_, Result<SettleDone, RecordError>> {
        Box::pin(self.write(Op::Settle(settle)))
    }

    fn expire(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>> {
        Box::pin(async move {
            // Outermost runs with an approval request that has expired, oldest first.
            let sql = "SELECT root_id FROM agent_action WHERE status = 'awaiting_confirmation' AND expires_at <= @now \
                       ORDER BY expires_at LIMIT $1";
            let found: Vec<RunId> = self.working.all(sql, values![most]).await.map_err(unavailable)?;
            let mut due = Vec::new();
            for root in found {
                if !due.contains(&root) {
                    due.push(root);
                }
            }
            if !due.is_empty() {
                self.write::<()>(Op::ExpireApprovals(due.clone())).await?;
            }
            Ok(due)
        })
    }

    fn granted<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: &'a UserId,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND server = $3 AND tool = $4 \
             AND revoked_at IS NULL ORDER BY created_at, id",
            GRANT.selected_in_camel_case()
        );
        Box::pin(self.working.all(sql, values![tenant, user, server, tool]))
    }

    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<Grant>, QueryError>> {
        Box::pin(self.reading.grants(tenant, query))
    }

    fn grant<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        grant: GrantId,
    ) -> BoxFuture<'a, Result<Option<Grant>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM approval_grant WHERE id = $1 AND {OF_USER}",
            GRANT.selected_in_camel_case()
        );
        Box::pin(self.working.one(sql, values![grant, tenant, user]))
    }

    fn revoke<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        grant: GrantId,
        by: &'a str,
    ) -> BoxFuture<'a, Result<bool, RecordError>> {
        Box::pin(self.write(Op::Revoke(Revoke {
            tenant: tenant.clone(),
            user: user.cloned(),
            grant,
            by: by.into(),
        })))
    }

    fn thread<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        thread: ThreadId,
        before: Option<u64>,
        most: u32,
    ) -> BoxFuture<'a, Result<Option<Thread>, QueryError>> {
        Box::pin(self.working.thread(tenant, user, thread, before, most))
    }

    fn threads<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ThreadSummary>, QueryError>> {
        Box::pin(self.reading.threads(tenant, query))
    }

    fn history(&self, run: RunId, most: u32) -> BoxFuture<'_, Result<Vec<ThreadMessage>, QueryError>> {
        Box::pin(async move {
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
        })
    }

    fn next_after(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunId>, QueryError>> {
        Box::pin(async move {
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
        })
    }
}
