//! Where actions, a person's word on them, standing leave and threads are kept (DESIGN.md section 6).

use std::sync::Arc;

use super::BoxFuture;
use super::records::{ListQuery, QueryError, RecordError};
use crate::domain::action::{Action, ActionStatus, Grant, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::{Thread, ThreadMessage, ThreadSummary};

/// The store of actions. Every change is one conditional UPDATE within one commit.
pub trait Actions: Send + Sync {
    /// A page of actions. Fields to filter by: `status`, `tool`, `user_id`, `agent_id`, `created_at`.
    fn list<'a>(&'a self, tenant: &'a TenantId, query: &'a ListQuery) -> BoxFuture<'a, Result<ActionPage, QueryError>>;

    /// The action that an approval speaks of; `None` when the tenant (or the user, where one is given) has no such one.
    fn of_approval<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        approval: ApprovalId,
    ) -> BoxFuture<'a, Result<Option<Action>, QueryError>>;

    /// One action; as [`Actions::of_approval`].
    fn action<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        action: ActionId,
    ) -> BoxFuture<'a, Result<Option<Action>, QueryError>>;

    /// All actions of a run and of those it called, in order. Arguments are told of actions that wait for a person, or
    /// that one has approved, and details of those that wait; of others they are left empty.
    fn of_run(&self, root: RunId) -> BoxFuture<'_, Result<Vec<Action>, QueryError>>;

    /// A person's answer. Of many who answer one wins; what it sets going is a run that anybody may take up.
    fn resolve(&self, resolve: Resolve) -> BoxFuture<'_, Result<Resolved, RecordError>>;

    /// What a person says of an action in doubt, once its outermost run is over: did it happen?
    fn settle(&self, settle: Settle) -> BoxFuture<'_, Result<SettleDone, RecordError>>;

    /// Ends the waiting of actions whose time is over. The runs that wait for one go on.
    fn expire(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>>;

    /// Live grants of a user for a tool.
    fn granted<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: &'a UserId,
        server: &'a str,
        tool: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, QueryError>>;

    /// A page of grants, revoked ones too. Fields to filter by: `grant_id`, `tool`, `user_id`, `created_at`.
    fn grants<'a>(&'a self, tenant: &'a TenantId, query: &'a ListQuery)
    -> BoxFuture<'a, Result<GrantPage, QueryError>>;

    /// Takes a grant back. False when there is none, or when it was taken back before.
    fn revoke<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        grant: GrantId,
        by: &'a str,
    ) -> BoxFuture<'a, Result<bool, RecordError>>;

    /// A thread with its latest messages before number `before`, in order.
    fn thread<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        thread: ThreadId,
        before: Option<u64>,
        most: u32,
    ) -> BoxFuture<'a, Result<Option<Thread>, QueryError>>;

    /// A page of threads, the latest active first. Fields to filter by: `agent_id`, `user_id`, `created_at`, `updated_at`.
    fn threads<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ThreadPage, QueryError>>;

    /// What was said in a thread before a run's own message, the latest at most, in order.
    fn history(&self, run: RunId, most: u32) -> BoxFuture<'_, Result<Vec<ThreadMessage>, QueryError>>;

    /// The run that is to begin next in the thread of this one, where none is going there.
    fn next_after(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunId>, QueryError>>;
}

/// A page of actions.
#[derive(Clone, Debug, Default)]
pub struct ActionPage {
    /// The rows.
    pub actions: Vec<Action>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// A page of grants.
#[derive(Clone, Debug, Default)]
pub struct GrantPage {
    /// The rows.
    pub grants: Vec<Grant>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// A page of threads.
#[derive(Clone, Debug, Default)]
pub struct ThreadPage {
    /// The rows.
    pub threads: Vec<ThreadSummary>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// A person's answer.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// To which question.
    pub approval: ApprovalId,
    /// The action, as it was read.
    pub action: ActionId,
    /// Its outermost run, as it was read.
    pub root: RunId,
    /// What they say.
    pub resolution: Resolution,
    /// Why, in their words.
    pub reason: Option<Arc<str>>,
    /// Who, by name.
    pub by: Arc<str>,
    /// The id of the grant to be made, where one is to be.
    pub grant: Option<GrantId>,
    /// What the thread tells of it.
    pub words: Arc<str>,
}

/// What came of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It counts.
    Done,
    /// The same person gave the same answer before.
    Again,
    /// The question is not what was asked: it was changed in the database. It can be rejected.
    Changed,
    /// Somebody was first: where the action is, what was said, by whom.
    Late(ActionStatus, Option<Resolution>, Option<String>),
}

/// What a person says of an action in doubt.
#[derive(Clone, Debug)]
pub struct Settle {
    /// Which.
    pub action: ActionId,
    /// Its outermost run.
    pub root: RunId,
    /// Did it happen?
    pub happened: bool,
    /// Who says so, by name.
    pub by: Arc<str>,
    /// What the thread of its outermost run is told.
    pub words: Arc<str>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleDone {
    /// It counts.
    Done,
    /// The same was said before.
    Again,
    /// It is not in doubt: so it is.
    NotInDoubt(ActionStatus),
    /// Its outermost run is not over.
    NotOver,
    /// Its outermost run is paused, and takes the word when it is resumed.
    WithRun,
}

/// A grant that is to be taken back.
#[derive(Clone, Debug)]
pub struct Revoke {
    /// Whose it is.
    pub tenant: TenantId,
    /// Of this user alone, where one is given.
    pub user: Option<UserId>,
    /// Which.
    pub grant: GrantId,
    /// Who takes it back, by name.
    pub by: Arc<str>,
}
