//! The store of actions, approval resolutions, grants and threads.

use std::sync::Arc;

use async_trait::async_trait;

use super::records::{ListQuery, Page, QueryError, RecordError};
use crate::api::approvals::Grant;
use crate::api::threads::{Thread, ThreadMessage, ThreadSummary};
use crate::domain::action::{Action, ActionStatus, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};

/// The store of actions. Every change is one conditional UPDATE within one commit.
#[async_trait]
pub trait Actions: Send + Sync {
    /// A page of actions: the oldest first, unless the caller orders it otherwise.
    async fn list(&self, tenant: &TenantId, which: Which, query: &ListQuery) -> Result<Page<Action>, QueryError>;

    /// The action of an approval. `None` when the tenant (or the given user) has no such action.
    async fn of_approval(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        approval: ApprovalId,
    ) -> Result<Option<Action>, QueryError>;

    /// One action, with the same rules as [`Actions::of_approval`].
    async fn action(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        action: ActionId,
    ) -> Result<Option<Action>, QueryError>;

    /// All actions of a run and of its child runs, in order. Arguments are filled for actions that are awaiting
    /// approval or approved, details only for actions that are awaiting approval; otherwise both are empty.
    async fn of_run(&self, root: RunId) -> Result<Vec<Action>, QueryError>;

    /// Resolves an approval. When several callers resolve the same approval, one wins. The run that this wakes can be
    /// claimed by any process.
    async fn resolve(&self, resolve: Resolve) -> Result<Resolved, RecordError>;

    /// Settles an in-doubt action after its outermost run has ended: did the action happen?
    async fn settle(&self, settle: Settle) -> Result<SettleDone, RecordError>;

    /// Expires actions whose approval was not resolved in time. The runs that wait for them continue.
    async fn expire(&self, most: u32) -> Result<Vec<RunId>, RecordError>;

    /// The grants of a user for a tool that are not revoked.
    async fn granted(
        &self,
        tenant: &TenantId,
        user: &UserId,
        server: &str,
        tool: &str,
    ) -> Result<Vec<Grant>, QueryError>;

    /// A page of grants, revoked ones too.
    async fn grants(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Grant>, QueryError>;

    /// One grant, revoked or not, with the same rules as [`Actions::of_approval`].
    async fn grant(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        grant: GrantId,
    ) -> Result<Option<Grant>, QueryError>;

    /// Revokes a grant. False when there is no such grant, or when it was already revoked.
    async fn revoke(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        grant: GrantId,
        by: &str,
    ) -> Result<bool, RecordError>;

    /// A thread with its latest messages before number `before`, in order.
    async fn thread(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        thread: ThreadId,
        before: Option<u64>,
        most: u32,
    ) -> Result<Option<Thread>, QueryError>;

    /// A page of threads, most recently active first.
    async fn threads(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<ThreadSummary>, QueryError>;

    /// The messages of a thread before a run's own message, in order: at most `most`, the latest ones.
    async fn history(&self, run: RunId, most: u32) -> Result<Vec<ThreadMessage>, QueryError>;

    /// The next run to start in this run's thread, if no run is active there.
    async fn next_after(&self, run: RunId) -> Result<Option<RunId>, QueryError>;
}

/// The actions of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those in this state.
    In(ActionStatus),
    /// Those whose approval was requested, and that do not wait for it any more: it was resolved, or expired.
    Answered,
}

/// A request to resolve an approval.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// Which approval.
    pub approval: ApprovalId,
    /// The action, as it was read.
    pub action: ActionId,
    /// Its outermost run, as it was read.
    pub root: RunId,
    /// The resolution.
    pub resolution: Resolution,
    /// The approver's reason.
    pub reason: Option<Arc<str>>,
    /// The approver's name.
    pub by: Arc<str>,
    /// The id of the grant to create, if one was requested.
    pub grant: Option<GrantId>,
    /// The thread message about it.
    pub words: Arc<str>,
}

/// The result of resolving an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The resolution was recorded.
    Done,
    /// The same approver gave the same resolution before.
    Again,
    /// The approval request was changed in the database. It can only be rejected.
    Changed,
    /// The approval was already resolved: the action's status, the resolution, and the approver.
    Late(ActionStatus, Option<Resolution>, Option<String>),
}

/// A request to settle an in-doubt action.
#[derive(Clone, Debug)]
pub struct Settle {
    /// Which action.
    pub action: ActionId,
    /// Its outermost run.
    pub root: RunId,
    /// Did the action happen?
    pub happened: bool,
    /// The name of the caller that settles it.
    pub by: Arc<str>,
    /// The message for the thread of the outermost run.
    pub words: Arc<str>,
}

/// The result of settling an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleDone {
    /// The answer was recorded.
    Done,
    /// The same answer was recorded before.
    Again,
    /// The action is not in doubt; its status.
    NotInDoubt(ActionStatus),
    /// Its outermost run has not ended.
    RunInProgress,
    /// Its outermost run is paused, so the answer must come with the request that resumes it.
    WithRun,
}

/// A request to revoke a grant.
#[derive(Clone, Debug)]
pub struct Revoke {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// If given, the grant must belong to this user.
    pub user: Option<UserId>,
    /// Which grant.
    pub grant: GrantId,
    /// The name of the caller that revokes it.
    pub by: Arc<str>,
}
