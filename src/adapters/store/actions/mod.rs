//! Actions, grants and threads: port [`Actions`]. `requests`, `resolve`, `settle` and `thread` write in the writer's
//! transaction, `columns` are their columns. `read` reads, on connections that analysts do not use.
//!
//! Every change of an action first locks its outermost run. So of two concurrent changes the second sees the first.

mod columns;
mod read;
mod requests;
mod resolve;
mod settle;
mod thread;

pub(super) use columns::{ACTION, GRANT, THREAD};

use super::Store;
use super::op::Op;
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
        Box::pin(self.action_of_approval(approval, tenant, user))
    }

    fn action<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        action: ActionId,
    ) -> BoxFuture<'a, Result<Option<Action>, QueryError>> {
        Box::pin(self.one_action(action, tenant, user))
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
            let due = self.expired(most).await?;
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
        Box::pin(self.said_before(run, most))
    }

    fn next_after(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunId>, QueryError>> {
        Box::pin(self.next_in_thread(run))
    }
}
