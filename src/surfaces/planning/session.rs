//! A planning session as callers see it.

use serde::Serialize;
use utoipa::ToSchema;

use super::log::{LoggedAction, PullRequest};
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId, UserId};
use crate::domain::names::names;
use crate::domain::plan::{Task, TaskId, TaskStatus};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::domain::time::rfc3339;
use crate::ports::planning::{Cleanup, StoredSession};

/// A planning session.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningSession)]
pub struct Session {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub session_id: PlanningSessionId,
    /// Its user; only for pages.
    #[serde(skip)]
    pub user: UserId,
    /// Its status.
    pub status: SessionStatus,
    /// Why it ended without reaching its goal.
    pub status_reason: Option<Reason>,
    /// The goal, in the user's own text.
    pub prompt: String,
    /// The address of the repository.
    pub repo_url: String,
    /// The deadline, RFC 3339.
    #[schema(format = "date-time")]
    pub deadline: String,
    /// The time until then, in milliseconds; 0 once it has passed or the session has ended.
    pub time_left_ms: u64,
    /// The number of the current version of its plan; 0 while there is none.
    pub plan_version: u32,
    /// The tasks of the current version, in order.
    pub plan: Vec<Task>,
    /// The same as the JSON text that is stored; only with `view=raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_plan: Option<String>,
    /// The plan in a few sentences.
    pub summary: String,
    /// What the plan takes for granted.
    pub assumptions: Vec<String>,
    /// What may go wrong.
    pub risks: Vec<String>,
    /// Why the last refinement made no new version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refinement: Option<Refinement>,
    /// The task at work.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub current_task_id: Option<TaskId>,
    /// What the session waits for; `null` in a list.
    #[schema(required = true)]
    pub waiting_for: Option<Vec<WaitingFor>>,
    /// The pull requests that it opened; `null` in a list.
    #[schema(required = true)]
    pub pull_requests: Option<Vec<PullRequest>>,
    /// The run that works for it, or worked last: it plans, and from the confirmation on works through the plan.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The tokens of all its runs.
    pub usage: Tokens,
    /// When it was created, RFC 3339.
    #[schema(format = "date-time")]
    pub created_at: String,
    /// When it was last changed.
    #[schema(format = "date-time")]
    pub updated_at: String,
    /// When its plan was confirmed.
    #[schema(format = "date-time")]
    pub started_at: Option<String>,
    /// When it ended.
    #[schema(format = "date-time")]
    pub completed_at: Option<String>,
    /// Its result; `null` until it has ended, and in a list.
    #[schema(required = true)]
    pub result: Option<SessionResult>,
}

/// The result of a session.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningResult)]
pub struct SessionResult {
    /// Its final status.
    pub status: SessionStatus,
    /// Its first actions, at most 1000.
    pub log: Vec<LoggedAction>,
    /// Does `GET /v1/sessions/{id}/log` have more?
    pub log_truncated: bool,
    /// What the cleanup did with its containers.
    pub cleanup: Cleanup,
}

names! {
    /// What a session waits for.
    WaitingKind {
        /// A person has to resolve an approval request.
        Approval = "approval",
        /// The outcome of an action is unknown; a person has to settle it.
        InDoubt = "in_doubt",
    }
}

/// Something that a session waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningWait)]
pub struct WaitingFor {
    /// What is missing.
    pub kind: WaitingKind,
    /// The task; `null` for a call of the planner.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub task_id: Option<TaskId>,
    /// The tool.
    pub tool: String,
    /// The approval request; only of the kind `approval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub approval_id: Option<ApprovalId>,
    /// The action.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
}

/// Why a session ended without reaching its goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlanningReason)]
pub struct Reason {
    /// The reason.
    pub code: SessionReason,
    /// Details.
    pub detail: String,
}

/// A refinement that made no new version. The version before it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlanRefinement)]
pub struct Refinement {
    /// Always `failed`.
    pub outcome: &'static str,
    /// The reason.
    pub code: SessionReason,
    /// Details.
    pub detail: String,
}

/// Tokens, summed over the model calls of all runs of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningUsage)]
pub struct Tokens {
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    /// Tokens of the answers, without thoughts.
    pub output_tokens: u64,
    /// Thinking tokens.
    pub thought_tokens: u64,
    /// The part of `inputTokens` that came from a cache.
    pub cached_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        let Usage {
            input_tokens,
            output_tokens,
            thought_tokens,
            cached_tokens,
        } = usage;
        Self {
            input_tokens,
            output_tokens,
            thought_tokens,
            cached_tokens,
        }
    }
}

impl Session {
    /// The session at this time, in microseconds since the epoch, with what its row holds.
    #[must_use]
    pub(super) fn of(stored: StoredSession, now_us: i64) -> Self {
        let left_us = match stored.status.has_ended() {
            true => 0,
            false => stored.deadline_us.saturating_sub(now_us).max(0).unsigned_abs(),
        };
        Self {
            session_id: stored.id,
            user: stored.user,
            status: stored.status,
            status_reason: stored.reason.map(|(code, detail)| Reason {
                code,
                detail: detail.to_string(),
            }),
            prompt: stored.prompt.to_string(),
            repo_url: stored.repo_url.to_string(),
            deadline: rfc3339(stored.deadline_us),
            time_left_ms: left_us / 1000,
            plan_version: stored.version,
            raw_plan: None,
            current_task_id: at_work(&stored.plan.tasks),
            waiting_for: None,
            pull_requests: None,
            result: None,
            plan: stored.plan.tasks,
            summary: stored.notes.summary,
            assumptions: stored.notes.assumptions,
            risks: stored.notes.risks,
            refinement: stored.refinement_failed.map(|(code, detail)| Refinement {
                outcome: "failed",
                code,
                detail: detail.to_string(),
            }),
            run_id: stored.run,
            usage: stored.usage.into(),
            created_at: rfc3339(stored.created_us),
            updated_at: rfc3339(stored.updated_us),
            started_at: stored.started_us.map(rfc3339),
            completed_at: stored.completed_us.map(rfc3339),
        }
    }

    /// With the plan as the JSON text that is stored.
    #[must_use]
    pub fn raw(mut self) -> Self {
        let text = serde_json::to_string(&self.plan);
        self.raw_plan = Some(text.unwrap_or_else(|error| unreachable!("tasks print as JSON: {error}")));
        self
    }
}

fn at_work(tasks: &[Task]) -> Option<TaskId> {
    let at_work = tasks.iter().find(|task| task.status == TaskStatus::InProgress);
    at_work.map(|task| task.id)
}
