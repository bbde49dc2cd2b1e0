//! Runs of agents.

use serde_json::value::RawValue;

use super::filter::{Filter, Kind, Listed};
use super::names::sent;
use super::page;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::decision::{Outcome, Usage};
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::time::Timestamp;

page! {
    /// A page of runs.
    RunPage { runs: AgentRun }
}

impl Listed for RunPage {
    const FILTERS: &'static [Filter] = &[
        Filter("agent_id", Kind::Text),
        Filter("status", Kind::Names(RunStatus::WORDS)),
        Filter("user_id", Kind::Text),
        Filter("parent_run_id", Kind::Text),
        Filter("definition_hash", Kind::Text),
        Filter("created_at", Kind::Time),
        Filter("stop_reason", Kind::Names(StopReason::WORDS)),
    ];
    const EXAMPLE: &'static str = "status = \"paused\"";
}

sent! {
    /// A run of an agent.
    AgentRun as "AgentRun" {
        /// The id of the run.
        id: RunId,
        /// The project of its agent.
        project_id: String,
        /// The agent.
        agent_id: String,
        /// The run that called this one; null for a run that was triggered directly.
        parent_run_id: Option<RunId>,
        /// The current status.
        status: RunStatus,
        /// The final text; for a run that was stopped early, the text so far.
        summary: Option<String>,
        /// The structured output, which conforms to the agent's schema; null for an agent without a schema.
        #[shape(Shape::Optional(Box::new(Shape::Object)))]
        output: Option<Box<RawValue>>,
        /// Why it failed or was stopped early, as text.
        error_message: Option<String>,
        /// Model calls. For a flow, those of its steps. Calls of sub-agents count in their own runs.
        steps: u32,
        /// When it was accepted, RFC 3339.
        created_at: Timestamp,
        /// When it started, RFC 3339.
        started_at: Option<Timestamp>,
        /// When it ended, RFC 3339.
        completed_at: Option<Timestamp>,
        /// Wall-clock time from `started_at` to `completed_at`.
        duration_ms: Option<u64>,
        /// Hash of the definition it uses.
        definition_hash: String,
        /// The version of the definition it uses; null for an agent from a file.
        definition_version: Option<i64>,
        /// The earlier attempts, if it was paused and resumed. The other fields are about the current attempt, except for
        /// `steps` and `usage`, which count all.
        attempts: Vec<Attempt>,
        /// What it recovered from while it ran.
        recovered_from: Option<StopReason>,
        /// What stopped it early or made it fail.
        stop_reason: Option<StopReason>,
        /// Calls whose outcome is unknown. To resume the run, state for each whether it happened.
        in_doubt: Vec<InDoubtCall>,
        /// Tokens over all its model calls. For a flow, those of its steps. Tokens of sub-agents count in their own runs.
        usage: Usage,
        /// The outcome of its decision; null while the run is in progress.
        outcome_category: Option<Outcome>,
    }
}

sent! {
    /// An attempt of a run that ended with a pause, before the run was resumed.
    #[derive(PartialEq, Eq)]
    Attempt as "Attempt" {
        /// When it started, RFC 3339.
        started_at: String,
        /// When it was paused, RFC 3339.
        completed_at: String,
        /// What stopped it early.
        stop_reason: Option<StopReason>,
        /// The same as text.
        error_message: Option<String>,
        /// The text so far.
        summary: Option<String>,
        /// Model calls of the run until then.
        steps: u32,
    }
}

sent! {
    /// A tool call whose outcome is unknown.
    #[derive(PartialEq, Eq)]
    InDoubtCall as "InDoubtCall" {
        /// The call.
        action_id: ActionId,
        /// The tool.
        tool: String,
        /// The arguments of the call.
        #[shape(Shape::Object)]
        parameters: serde_json::Value,
    }
}

impl AgentRun {
    /// Why it did not succeed, from a closed list: the subcategory of its outcome in lower case, `in_doubt`,
    /// `process_lost`, `size_limit` or `cancelled`.
    //
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
