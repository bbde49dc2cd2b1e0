//! A run of an agent as its row stores it, and its states.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::decision::{Outcome, Usage};
use super::ids::{ActionId, RunId};
use super::names::names;
use crate::api::Timestamp;

/// The longest time limit that a request may set for a run.
pub const MOST_TIME: Duration = Duration::from_secs(24 * 3600);

names! {
    /// The status of a run.
    RunStatus {
        /// Accepted; no worker has started it.
        Queued = "queued",
        /// A worker runs it. If that worker died, another one continues it.
        Running = "running",
        /// It waits for an approver.
        AwaitingConfirmation = "awaiting_confirmation",
        /// It ended successfully.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It was stopped before its end and can be resumed.
        Paused = "paused",
    }
}

names! {
    /// What stopped a run early, or what it recovered from.
    StopReason {
        /// It reached its limit of model calls.
        StepLimit = "step_limit",
        /// It reached its time limit.
        TimeLimit = "time_limit",
        /// Its deadline passed, an absolute time.
        Deadline = "deadline",
        /// It reached its token limit.
        TokenLimit = "token_limit",
        /// It repeated the same tool call.
        DoomLoop = "doom_loop",
        /// The outcome of a call is unknown; a person must settle it.
        InDoubt = "in_doubt",
        /// It ended with text where its structured output was required.
        MissingOutput = "missing_output",
        /// Its output repeatedly failed to match its schema.
        InvalidOutput = "invalid_output",
        /// A tool or model that it needs is unavailable.
        Unavailable = "unavailable",
        /// The process that ran it died.
        Crash = "crash",
        /// Several processes in a row died while they ran it, so gavel gave it up.
        ProcessLost = "process_lost",
        /// Its output or its history exceeds the size limit.
        SizeLimit = "size_limit",
        /// A step of its flow was stopped early.
        Step = "step",
    }
}

impl RunStatus {
    /// The legal transitions. Each is one conditional UPDATE, so that only one of two concurrent writers succeeds. Its
    /// condition is built from this function, or names one status that this function allows.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use RunStatus::{AwaitingConfirmation, Cancelled, Completed, Failed, Paused, Queued, Running};
        matches!(
            (self, next),
            (Queued, Running | Failed | Cancelled)
                | (Running, Running | AwaitingConfirmation)
                | (AwaitingConfirmation, Running)
                | (Running | AwaitingConfirmation, Completed | Failed | Cancelled | Paused)
        )
    }

    /// Whether the run has ended. A paused run has ended as well, until it is resumed.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled | Self::Paused => true,
            Self::Queued | Self::Running | Self::AwaitingConfirmation => false,
        }
    }
}

impl AgentRun {
    /// Why it did not succeed, from a closed list: the subcategory of its outcome in lower case, `in_doubt`,
    /// `process_lost`, `size_limit` or `cancelled`.
    //
    #[must_use]
    pub fn error_code(&self) -> Option<String> {
        match (self.status, self.stop_reason) {
            (RunStatus::Cancelled, _) => Some("cancelled".to_owned()),
            (
                RunStatus::Failed,
                Some(reason @ (StopReason::InDoubt | StopReason::ProcessLost | StopReason::SizeLimit)),
            ) => Some(reason.as_str().to_owned()),
            (RunStatus::Failed, _) => self.outcome_category.map(Outcome::code),
            (RunStatus::Queued | RunStatus::Running | RunStatus::AwaitingConfirmation, _) => None,
            (RunStatus::Completed | RunStatus::Paused, _) => None,
        }
    }
}

/// A run of an agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentRun {
    /// The id of the run.
    #[schema(value_type = String, format = "uuid")]
    pub id: RunId,
    /// The project of its agent.
    pub project_id: String,
    /// The agent.
    pub agent_id: String,
    /// The run that called this one; null for a run that was triggered directly.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub parent_run_id: Option<RunId>,
    /// The current status.
    pub status: RunStatus,
    /// The final text; for a run that was stopped early, the text so far.
    #[schema(required = true)]
    pub summary: Option<String>,
    /// The structured output, which conforms to the agent's schema; null for an agent without a schema.
    #[schema(value_type = Option<Object>, required = true)]
    pub output: Option<Box<RawValue>>,
    /// Why it failed or was stopped early, as text.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// Model calls. For a flow, those of its steps. Calls of sub-agents count in their own runs.
    pub steps: u32,
    /// When it was accepted, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When it started, RFC 3339.
    #[schema(value_type = Option<String>, required = true)]
    pub started_at: Option<Timestamp>,
    /// When it ended, RFC 3339.
    #[schema(value_type = Option<String>, required = true)]
    pub completed_at: Option<Timestamp>,
    /// Wall-clock time from `started_at` to `completed_at`.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// Hash of the definition it uses.
    pub definition_hash: String,
    /// The version of the definition it uses; null for an agent from a file.
    #[schema(required = true)]
    pub definition_version: Option<i64>,
    /// The earlier attempts, if it was paused and resumed. The other fields are about the current attempt, except for
    /// `steps` and `usage`, which count all.
    pub attempts: Vec<Attempt>,
    /// What it recovered from while it ran.
    #[schema(required = true)]
    pub recovered_from: Option<StopReason>,
    /// What stopped it early or made it fail.
    #[schema(required = true)]
    pub stop_reason: Option<StopReason>,
    /// Calls whose outcome is unknown. To resume the run, state for each whether it happened.
    pub in_doubt: Vec<InDoubtCall>,
    /// Tokens over all its model calls. For a flow, those of its steps. Tokens of sub-agents count in their own runs.
    pub usage: Usage,
    /// The outcome of its decision; null while the run is in progress.
    #[schema(required = true)]
    pub outcome_category: Option<Outcome>,
}

/// An attempt of a run that ended with a pause, before the run was resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it was paused, RFC 3339.
    pub completed_at: String,
    /// What stopped it early.
    #[schema(required = true)]
    pub stop_reason: Option<StopReason>,
    /// The same as text.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// The text so far.
    #[schema(required = true)]
    pub summary: Option<String>,
    /// Model calls of the run until then.
    pub steps: u32,
}

/// A tool call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InDoubtCall {
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The tool.
    pub tool: String,
    /// The arguments of the call.
    #[schema(value_type = Object)]
    pub parameters: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::RunStatus::{self, *};

    /// R-states, X-4: an ended run never changes, and a queued run that ends without starting is never successful.
    #[test]
    fn only_the_legal_transitions_are_possible() {
        for from in RunStatus::ALL.iter().copied() {
            for to in RunStatus::ALL.iter().copied() {
                let legal = match from {
                    Queued => matches!(to, Running | Failed | Cancelled),
                    // Another process continues it.
                    Running => to != Queued,
                    AwaitingConfirmation => !matches!(to, Queued | AwaitingConfirmation),
                    Completed | Failed | Cancelled | Paused => false,
                };
                assert_eq!(from.may_become(to), legal, "{from:?} → {to:?}");
                assert!(!from.has_ended() || !legal, "{from:?} has ended");
            }
        }
    }
}
