//! Actions, grants and threads: port [`Actions`]. `requests`, `resolve`, `settle` and `thread` write in the writer's
//! transaction, with the texts of `statements`. `read` reads, on connections that analysts do not use.
//!
//! Every change of an action first locks its outermost run. So of two concurrent changes the second sees the first.

mod line;
mod read;
mod requests;
mod resolve;
mod row;
mod settle;
mod statements;
mod thread;

pub(super) use line::Line;
pub(super) use row::{ACTION, GRANT, THREAD, action, grant, thread};
pub(super) use statements::ActionStatements;

use super::Store;
use super::runs::{RunDone, RunOp, answer};
use crate::domain::action::{Action, Grant};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::{Thread, ThreadMessage, ThreadSummary};
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
        Box::pin(self.one_action("approval_id", approval.to_string(), tenant, user))
    }

    fn action<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        action: ActionId,
    ) -> BoxFuture<'a, Result<Option<Action>, QueryError>> {
        Box::pin(self.one_action("id", action.to_string(), tenant, user))
    }

    fn of_run(&self, root: RunId) -> BoxFuture<'_, Result<Vec<Action>, QueryError>> {
        Box::pin(self.working.actions_of(root))
    }

    fn resolve(&self, resolve: Resolve) -> BoxFuture<'_, Result<Resolved, RecordError>> {
        let op = RunOp::Resolve(resolve);
        Box::pin(async move { answer!(self.run("resolve approval", op).await?, RunDone::Resolved) })
    }

    fn settle(&self, settle: Settle) -> BoxFuture<'_, Result<SettleDone, RecordError>> {
        let op = RunOp::Settle(settle);
        Box::pin(async move { answer!(self.run("settle action", op).await?, RunDone::Settled) })
    }

    fn expire(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>> {
        Box::pin(async move {
            let due = self.expired(most).await?;
            if !due.is_empty() {
                self.run("expire approvals", RunOp::Expire(due.clone())).await?;
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
        Box::pin(self.live_grants(tenant, user, server, tool))
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
        Box::pin(self.one_grant(grant, tenant, user))
    }

    fn revoke<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        grant: GrantId,
        by: &'a str,
    ) -> BoxFuture<'a, Result<bool, RecordError>> {
        let op = RunOp::Revoke(Revoke {
            tenant: tenant.clone(),
            user: user.cloned(),
            grant,
            by: by.into(),
        });
        Box::pin(async move { answer!(self.run("revoke grant", op).await?, RunDone::Revoked) })
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
        Box::pin(self.said_before(run, most))
    }

    fn next_after(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunId>, QueryError>> {
        Box::pin(self.next_in_thread(run))
    }
}
