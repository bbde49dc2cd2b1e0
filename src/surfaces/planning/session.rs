//! A planning session, a version of its plan, as callers see them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::decision::Usage;
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::plan::{Change, Task};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::domain::time::rfc3339;
use crate::ports::planning::{PlanVersion, StoredSession, VersionKind};

/// A planning session.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningSession)]
pub struct Session {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub session_id: PlanningSessionId,
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
    /// The run that plans, or planned last; its events show the work under way.
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
    /// When it ended.
    #[schema(format = "date-time")]
    pub completed_at: Option<String>,
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

/// One version of a plan.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanVersion)]
pub struct Version {
    /// 1, 2, 3 …
    pub version: u32,
    /// When it was written, RFC 3339.
    #[schema(format = "date-time")]
    pub at: String,
    /// Who asked for it.
    pub by: String,
    /// How it came about.
    pub kind: VersionKind,
    /// The person's own text: the goal, or what to change.
    pub why: String,
    /// How it differs from the version before.
    #[schema(value_type = Vec<TaskChange>)]
    pub changes: Vec<Change>,
    /// Hex SHA-256 of the plan.
    pub plan_hash: String,
    /// The run that made it; `null` if a person edited it.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub run_id: Option<RunId>,
    /// The tasks of this version.
    pub plan: Vec<Task>,
}

/// How two versions of a plan differ in a task.
#[derive(ToSchema)]
#[schema(as = PlanChange)]
#[expect(dead_code, reason = "describes `Change`, whose variants have the same fields")]
struct TaskChange {
    /// What happened to the task.
    op: Operation,
    /// The task's id.
    #[schema(example = "t1")]
    task: String,
    /// Its title; that before, if it was removed.
    title: String,
}

/// What happened to a task.
#[derive(ToSchema)]
#[schema(as = PlanOperation, rename_all = "snake_case")]
#[expect(dead_code, reason = "describes `Change`")]
enum Operation {
    Add,
    Modify,
    Remove,
}

impl Session {
    /// The session at this time, in microseconds since the epoch.
    #[must_use]
    pub(super) fn of(stored: StoredSession, now_us: i64) -> Self {
        let left_us = match stored.status.has_ended() {
            true => 0,
            false => stored.deadline_us.saturating_sub(now_us).max(0).unsigned_abs(),
        };
        Self {
            session_id: stored.id,
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

impl From<PlanVersion> for Version {
    fn from(stored: PlanVersion) -> Self {
        Self {
            version: stored.version,
            at: rfc3339(stored.at_us),
            by: stored.by.to_string(),
            kind: stored.kind,
            why: stored.why.to_string(),
            changes: stored.changes,
            plan_hash: stored.hash.to_string(),
            run_id: stored.run,
            plan: stored.plan.tasks,
        }
    }
}
