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
use crate::engine::strategy::plan::Confirmed;
use crate::ports::planning::{Cleanup, RepositoryRead, StoredSession};

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
    /// Until when its plan can be confirmed, RFC 3339: the session ends then. `null` unless it waits for that.
    #[schema(format = "date-time", required = true)]
    pub confirm_by: Option<String>,
    /// The time until the deadline, in milliseconds; 0 once it has passed or the session has ended.
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
    /// What the plan assumes.
    pub assumptions: Vec<String>,
    /// What may go wrong.
    pub risks: Vec<String>,
    /// Why the last refinement made no new version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refinement: Option<Refinement>,
    /// What code read of the repository before the plan was made; `null` while there is no plan.
    #[schema(required = true)]
    pub read: Option<RepositoryRead>,
    /// What the planner asked the open world: each call with all that it carried out. `null` unless the plan waits for
    /// its confirmation; the log has them always.
    #[schema(required = true)]
    pub lookups: Option<Vec<LoggedAction>>,
    /// What the confirmation of the plan allows, or would allow now; `null` while a plan is being made, after the end,
    /// and in a list.
    #[schema(required = true)]
    pub scope: Option<SessionScope>,
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
    /// The model calls and tokens of all its runs.
    pub usage: SessionUsage,
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
    /// Its result; `null` until it has ended and its containers are removed, and in a list.
    #[schema(required = true)]
    pub result: Option<SessionResult>,
}

/// What the confirmation of a plan allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningScope)]
pub struct SessionScope {
    /// The repository in which the work may act.
    #[schema(example = "acme/dates")]
    pub repository: String,
    /// The branches that it may write; `*` is any text.
    #[schema(example = "gavel/*")]
    pub branches: String,
    /// The tools of the plan: those that it may use.
    pub tools: Vec<String>,
    /// Those of them that have side effects and are not bound to the repository. Each of their calls asks a person.
    pub not_bound: Vec<String>,
    /// Those that ask a person before each call all the same, and those of `askFor`.
    pub ask_first: Vec<String>,
    /// Those whose arguments decide whether a call asks a person.
    pub may_ask: Vec<String>,
    /// The confirmation; `null` before it.
    #[schema(required = true)]
    pub confirmed: Option<Confirmation>,
}

/// The confirmation of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlanConfirmation)]
pub struct Confirmation {
    /// The name of the person or the service that confirmed it.
    pub by: String,
    /// The version that was confirmed. Later ones are changes during the work, which allow nothing more.
    pub version: u32,
}

impl From<Confirmed> for Confirmation {
    fn from(Confirmed { by, version }: Confirmed) -> Self {
        Self { by, version }
    }
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

/// Model calls and their tokens, summed over all runs of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningUsage)]
pub struct SessionUsage {
    /// Model calls.
    pub model_calls: u64,
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    /// Tokens of the answers, without thoughts.
    pub output_tokens: u64,
    /// Thinking tokens.
    pub thought_tokens: u64,
    /// The part of `inputTokens` that came from a cache.
    pub cached_tokens: u64,
}

impl SessionUsage {
    fn of(model_calls: u64, usage: Usage) -> Self {
        let Usage {
            input_tokens,
            output_tokens,
            thought_tokens,
            cached_tokens,
        } = usage;
        Self {
            model_calls,
            input_tokens,
            output_tokens,
            thought_tokens,
            cached_tokens,
        }
    }
}

impl Session {
    /// The session at this time, in microseconds since the epoch, with what its row holds. `confirm_us`: how long its plan
    /// waits for a confirmation.
    #[must_use]
    pub(super) fn of(stored: StoredSession, now_us: i64, confirm_us: i64) -> Self {
        let waits = stored.status == SessionStatus::AwaitingConfirmation;
        let confirm_by_us = stored.updated_us.saturating_add(confirm_us).min(stored.deadline_us);
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
            confirm_by: waits.then(|| rfc3339(confirm_by_us)),
            time_left_ms: left_us / 1000,
            plan_version: stored.version,
            raw_plan: None,
            current_task_id: at_work(&stored.plan.tasks),
            read: stored.notes.read,
            lookups: None,
            scope: None,
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
            usage: SessionUsage::of(stored.model_calls, stored.usage),
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
