//! Pending approvals and in-doubt actions, as callers get them.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::action::Action;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId, ThreadId};
use crate::domain::plan::TaskId;
use crate::domain::time::rfc3339;

/// The tasks of planning sessions, by the runs that work on them.
#[derive(Clone, Debug, Default)]
pub struct Tasks(pub(super) HashMap<RunId, TaskId>);

impl Tasks {
    fn of(&self, action: &Action) -> Option<TaskId> {
        self.0.get(&action.run).copied()
    }
}

/// An action that waits for an approval.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    /// The id with which the approval is resolved.
    #[schema(value_type = String, format = "uuid")]
    pub approval_id: ApprovalId,
    /// The outermost run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The thread of the run; null for a run that was triggered outside of threads.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// The planning session of the run; null elsewhere.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub session_id: Option<PlanningSessionId>,
    /// The task of the session's plan; null elsewhere.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub task_id: Option<TaskId>,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The user on whose behalf the call is made.
    pub user_id: String,
    /// The agent that proposes the call.
    pub agent_id: String,
    /// The tool.
    pub tool: String,
    /// Exactly the arguments of the call.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// All recipients; null if the tool declares no recipients.
    #[schema(required = true)]
    pub recipients: Option<Vec<String>>,
    /// Can a grant be given for these recipients?
    pub grantable: bool,
    /// The account that the call would use, as the tool's server named it; null if the server named none.
    #[schema(required = true)]
    pub account: Option<String>,
    /// Why the call requires approval.
    pub reason: String,
    /// Warnings about the call.
    pub warnings: Vec<String>,
    /// When approval was requested, RFC 3339.
    pub created_at: String,
    /// When the approval expires, RFC 3339.
    pub expires_at: String,
}

impl PendingApproval {
    /// `None` for an action that is not waiting: it expires on time, even if that is recorded later. `now_us` is in
    /// microseconds since the epoch.
    #[must_use]
    pub fn of(action: Action, tasks: &Tasks, now_us: i64) -> Option<Self> {
        Some(Self {
            approval_id: action.approval.filter(|_| action.waits(now_us))?,
            run_id: action.root,
            thread_id: action.thread,
            session_id: action.session,
            task_id: tasks.of(&action),
            action_id: action.id,
            user_id: action.user,
            agent_id: action.agent,
            tool: action.tool,
            arguments: action.arguments,
            grantable: action.details.is_grantable(),
            recipients: action.details.all_recipients(),
            reason: action.details.reason,
            account: action.details.account,
            warnings: action.details.warnings,
            created_at: rfc3339(action.created_at),
            expires_at: rfc3339(action.expires_at?),
        })
    }
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionInDoubt {
    /// The id with which the action is settled.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The outermost run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The thread of the run; null for a run that was triggered outside of threads.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// The planning session of the run; null elsewhere.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub session_id: Option<PlanningSessionId>,
    /// The task of the session's plan; null elsewhere.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub task_id: Option<TaskId>,
    /// The user on whose behalf the call was made.
    pub user_id: String,
    /// The agent that made the call.
    pub agent_id: String,
    /// The tool.
    pub tool: String,
    /// Exactly the arguments of the call.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// All recipients; null if the tool declares no recipients.
    #[schema(required = true)]
    pub recipients: Option<Vec<String>>,
    /// When the call was started, RFC 3339.
    #[schema(required = true)]
    pub started_at: Option<String>,
}

impl ActionInDoubt {
    /// The action, for callers.
    #[must_use]
    pub fn of(action: Action, tasks: &Tasks) -> Self {
        Self {
            action_id: action.id,
            run_id: action.root,
            thread_id: action.thread,
            session_id: action.session,
            task_id: tasks.of(&action),
            user_id: action.user,
            agent_id: action.agent,
            tool: action.tool,
            arguments: action.arguments,
            recipients: action.details.all_recipients(),
            started_at: action.started_at.map(rfc3339),
        }
    }
}
