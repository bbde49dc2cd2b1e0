//! A run of an agent, as its row tells it, and the states it may pass through (REQUIREMENTS X-4).

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::decision::{Outcome, Usage};
use super::error_class::ErrorClass;
use super::ids::{ActionId, RunId};
use super::names::names;

names! {
    /// Where a run is.
    RunStatus {
        /// Accepted; nobody works on it yet.
        Queued = "queued",
        /// Somebody works on it, or has died doing so and will be followed by somebody else.
        Running = "running",
        /// It waits for a person's leave.
        AwaitingConfirmation = "awaiting_confirmation",
        /// It came to its end.
        Completed = "completed",
        /// It came to no good end.
        Failed = "failed",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
        /// It was cut short before its end, and can be resumed.
        Paused = "paused",
    }
}

names! {
    /// What stopped a run before its own end, or what it came back from.
    StopReason {
        /// Its model calls were spent.
        StepLimit = "step_limit",
        /// Its time was spent.
        TimeLimit = "time_limit",
        /// Its tokens were spent.
        TokenLimit = "token_limit",
        /// The same call again and again.
        DoomLoop = "doom_loop",
        /// It is not known whether a call had its effect; a person settles that.
        InDoubt = "in_doubt",
        /// It ended in words where its output was due.
        MissingOutput = "missing_output",
        /// Its output did not conform, time after time.
        InvalidOutput = "invalid_output",
        /// Its tools or its model are not there to go on with it.
        Unavailable = "unavailable",
        /// The process that ran it died.
        Crash = "crash",
        /// Process after process did not return from working on it, so it was given up.
        ProcessLost = "process_lost",
        /// What it was to put together, or to remember, is longer than it may be.
        SizeLimit = "size_limit",
        /// A step of its flow stopped before its end.
        Step = "step",
    }
}

impl RunStatus {
    /// The legal transitions. Each is one conditional UPDATE, so that of two who try only one succeeds. Its condition is made of this,
    /// or names one status from which this allows it.
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

    /// Nothing will happen any more. A paused run is over as well: to resume it makes a run of its own.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled | Self::Paused => true,
            Self::Queued | Self::Running | Self::AwaitingConfirmation => false,
        }
    }
}

impl AgentRun {
    /// Why it came to no good end, from a closed list: the subcategory of its outcome in lower case, `in_doubt`, `process_lost`,
    /// `size_limit` or `cancelled`.
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

    /// The class of [`AgentRun::error_code`].
    #[must_use]
    pub fn error_class(&self) -> Option<ErrorClass> {
        match (self.status, self.stop_reason) {
            (RunStatus::Cancelled, _) => Outcome::Cancelled.class(),
            (
                RunStatus::Failed,
                Some(reason @ (StopReason::InDoubt | StopReason::ProcessLost | StopReason::SizeLimit)),
            ) => Some(reason.class()),
            (RunStatus::Failed, _) => self.outcome_category.and_then(Outcome::class),
            (RunStatus::Queued | RunStatus::Running | RunStatus::AwaitingConfirmation, _) => None,
            (RunStatus::Completed | RunStatus::Paused, _) => None,
        }
    }
}

/// A run as everybody is shown it.
// DESIGN.md section 9
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AgentRun {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub id: RunId,
    /// The project of its agent.
    pub project_id: String,
    /// The agent.
    pub agent_id: String,
    /// The run that called this one; null for one that was triggered.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub parent_run_id: Option<RunId>,
    /// Where it is.
    pub status: RunStatus,
    /// The final text; of one that was cut short, as far as it came.
    #[schema(required = true)]
    pub summary: Option<String>,
    /// The structured output, conforming to the agent's schema; null for an agent without one.
    #[schema(value_type = Option<Object>, required = true)]
    pub output: Option<Box<RawValue>>,
    /// Why it failed, or why it was cut short, in words.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// Model calls; of a flow those of its steps. Those of agents that its model called are theirs.
    pub steps: u32,
    /// When it was accepted, RFC 3339.
    pub created_at: String,
    /// When work on it began.
    #[schema(required = true)]
    pub started_at: Option<String>,
    /// When it was over.
    #[schema(required = true)]
    pub completed_at: Option<String>,
    /// Wall clock from `started_at` to `completed_at`.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// Hash of the definition it runs under.
    pub definition_hash: String,
    /// The version of the definition it runs under; null for an agent from a file.
    #[schema(required = true)]
    pub definition_version: Option<i64>,
    /// The paused run that this one goes on with.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub resumed_from: Option<RunId>,
    /// The run that goes on with this one.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub resumed_by: Option<RunId>,
    /// What it came back from on its way.
    #[schema(required = true)]
    pub recovered_from: Option<StopReason>,
    /// What cut it short, or made it fail.
    #[schema(required = true)]
    pub stop_reason: Option<StopReason>,
    /// Calls of which it is not known whether they had their effect. To resume the run, say of each what happened.
    pub in_doubt: Vec<DoubtfulCall>,
    /// Tokens over all its model calls; of a flow those of its steps. Those of agents that its model called are theirs.
    pub usage: Usage,
    /// How its decision came out; null while it goes on.
    #[schema(required = true)]
    pub outcome_category: Option<Outcome>,
}

/// A call of which it is not known whether it had its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
pub struct DoubtfulCall {
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The tool.
    pub tool: String,
    /// What it was called with.
    #[schema(value_type = Object)]
    pub parameters: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::RunStatus::{self, *};

    /// R-states, X-4: what is over stays over, and nothing that waits its turn ends otherwise than unsuccessfully.
    #[test]
    fn only_the_legal_transitions_are_possible() {
        for from in RunStatus::ALL.iter().copied() {
            for to in RunStatus::ALL.iter().copied() {
                let legal = match from {
                    Queued => matches!(to, Running | Failed | Cancelled),
                    // It is taken up by another process.
                    Running => to != Queued,
                    AwaitingConfirmation => !matches!(to, Queued | AwaitingConfirmation),
                    Completed | Failed | Cancelled | Paused => false,
                };
                assert_eq!(from.may_become(to), legal, "{from:?} → {to:?}");
                assert!(!from.is_over() || !legal, "{from:?} is over");
            }
        }
    }
}
