//! Planning sessions and the history of their plans (P-103).
//!
//! A session is created, and refined, together with the run that plans: see
//! [`InSession`](super::runs::InSession). The end of that run moves it on, in the same commit: see
//! [`Fact::Planned`](super::commit::Fact::Planned). Everything else is written here, each by one conditional UPDATE.

use crate::api::planning::{Cleanup, Reason, RepositoryRead, SessionUsage, Version};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Deserializer};

use super::claims::Claim;
use super::records::{ListQuery, Page, QueryError, RecordError};
use crate::domain::action::ActionStatus;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId, TenantId, UserId};
use crate::domain::plan::{Change, Plan};
use crate::domain::planning_session::SessionStatus;

/// The rows of planning sessions.
#[async_trait]
pub trait PlanningSessions: Send + Sync {
    /// A session; `None` when the tenant (or the given user) has no such session.
    async fn session(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<Option<StoredSession>, QueryError>;

    /// The session that a run works for; `None` for the runs that it called.
    async fn session_of(&self, run: RunId) -> Result<Option<PlanningSessionId>, QueryError>;

    /// The runs that plan in a session or work through its plan, in the order of their creation. The last one works for
    /// it, or worked last.
    async fn runs(&self, session: PlanningSessionId) -> Result<Vec<RunId>, QueryError>;

    /// A page of sessions, newest first.
    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<StoredSession>, QueryError>;

    /// The versions of a session's plan after `after`, in order, at most `most`.
    async fn versions(&self, session: PlanningSessionId, after: u32, most: u32) -> Result<Vec<Version>, QueryError>;

    /// What an open session's run, and the runs that it called, wait for now, in the order of the calls: approvals, and
    /// settlements of in-doubt actions.
    async fn waiting(&self, session: PlanningSessionId) -> Result<Vec<SessionWait>, QueryError>;

    /// Writes a version that a person edited, if the session waits for its confirmation with the version before it.
    async fn edit(&self, edit: PlanEdit) -> Result<Moved, RecordError>;

    /// Cancels a session that is not over, and the run that works for it.
    async fn cancel(&self, cancel: SessionCancel) -> Result<Moved, RecordError>;

    /// Ends the sessions whose deadline is not after `now_us`, and those that have waited for a confirmation since
    /// `unconfirmed_us`; and moves those on whose run has ended without doing so:
    /// it was given up, or cancelled before a process took it. A run that waits for a settlement continues once the
    /// deadline has passed. Handles at most `most` and returns how many.
    async fn sweep(&self, now_us: i64, unconfirmed_us: i64, most: u32) -> Result<u32, RecordError>;
}

/// Something that a session waits for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SessionWait {
    /// In doubt, if a person must settle it; else it waits for its approval.
    pub status: ActionStatus,
    /// Its approval request.
    pub approval_id: Option<ApprovalId>,
    /// The action.
    pub action: ActionId,
    /// The run of the action: that of a task, or the session's own.
    pub run: RunId,
    /// The tool.
    pub tool: Arc<str>,
}

/// A session as its row stores it. Times are microseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredSession {
    /// Its id.
    pub id: PlanningSessionId,
    /// Its user.
    #[serde(rename = "user_id")]
    pub user: UserId,
    /// Its status.
    pub status: SessionStatus,
    /// Why it ended without reaching its goal, with details for callers.
    pub reason: Option<Reason>,
    /// The goal, in the user's own text.
    pub prompt: Arc<str>,
    /// The address of the repository.
    pub repo_url: Arc<str>,
    /// The deadline.
    #[serde(rename = "deadline")]
    pub deadline_us: i64,
    /// The number of the current version of its plan; 0 while there is none.
    pub version: u32,
    /// The current version of its plan.
    pub plan: Plan,
    /// What the author of the version says about it.
    #[serde(deserialize_with = "notes")]
    pub notes: PlanNotes,
    /// The run that works for it, or worked last: it plans, and from the confirmation on works through the plan.
    pub run: RunId,
    /// Why the last refinement made no new version; `None` if it did.
    pub refinement_failed: Option<Reason>,
    /// The tokens of all its runs.
    pub usage: SessionUsage,
    /// When it was created.
    #[serde(rename = "created_at")]
    pub created_us: i64,
    /// When it was last changed.
    pub updated_us: i64,
    /// When its plan was confirmed.
    pub started_us: Option<i64>,
    /// When it ended.
    pub completed_us: Option<i64>,
    /// Has its run not ended? After the end of the session it still cleans up.
    pub is_at_work: bool,
    /// What the cleanup at its end did; `None` if there was nothing to clean up.
    pub cleanup: Option<Cleanup>,
}

/// Without a plan there are none.
fn notes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PlanNotes, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// What the author of a plan says about it, and what the author had read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct PlanNotes {
    /// The plan in a few sentences.
    pub summary: String,
    /// What it assumes.
    pub assumptions: Vec<String>,
    /// What may go wrong.
    pub risks: Vec<String>,
    /// What was read before; a version that a person edited has that of the version before. `None` before the first
    /// plan.
    pub read: Option<RepositoryRead>,
}

/// A plan that a run made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadePlan {
    /// The plan.
    pub plan: Plan,
    /// What the model says about it.
    pub notes: PlanNotes,
    /// How it differs from the version before.
    pub changes: Vec<Change>,
    /// Who asked for it.
    pub by: Arc<str>,
    /// The person's own text: the goal, or what to change.
    pub why: Arc<str>,
}

/// A version that a person edited.
#[derive(Clone, Debug)]
pub struct PlanEdit {
    /// The session.
    pub session: PlanningSessionId,
    /// The version that was edited.
    pub version: u32,
    /// The new version. Its run is none, and its kind [`VersionKind::Edited`].
    pub made: MadePlan,
    /// The idempotency claim of the request.
    pub claim: Option<Claim>,
    /// Microseconds since the epoch.
    pub at_us: i64,
}

/// The cancellation of a session.
#[derive(Clone, Debug)]
pub struct SessionCancel {
    /// The session.
    pub session: PlanningSessionId,
    /// Who cancels it.
    pub by: Arc<str>,
    /// Why, in the person's own text.
    pub why: Option<Arc<str>>,
    /// Microseconds since the epoch.
    pub at_us: i64,
}

/// The result of a change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Changed, now or by the same request before.
    Yes,
    /// Nothing was changed: the session's status and version now. For an edit, a deadline that has passed counts at
    /// once.
    No(SessionStatus, u32),
    /// The idempotency key was used with another body before.
    Mismatch,
    /// There is no such session.
    NotFound,
}
