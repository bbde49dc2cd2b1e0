//! The events of a run, for every surface: what its readers see of its journal, and of the model's text as it arrives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::names;
use super::names::sent;
use super::planning::StepEvidence;
use super::runs::AgentRun;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, DecisionId, RunId};
use crate::domain::journal::{CallFailure, Phase};
use crate::domain::plan::TaskChange;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;

/// What happened: a JSON object with a `type`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The request was accepted. The first event of a chat's stream.
    Started {
        /// The id of the decision that will follow.
        #[schema(value_type = String, format = "uuid")]
        decision_id: DecisionId,
    },
    /// The task, as the model gets it.
    Input {
        /// The text.
        text: String,
    },
    /// More text of the model. Never stored: a slow reader may miss some, and `turn` has the whole text.
    Delta {
        /// The text.
        #[schema(value_type = String)]
        text: Arc<str>,
    },
    /// More of the model's thinking, which is not part of its answer. Sent only if the model is asked for it. Never
    /// stored: a slow reader may miss some, and `turn` has all of it.
    Thought {
        /// The text.
        #[schema(value_type = String)]
        text: Arc<str>,
    },
    /// The text and thoughts of this turn so far are void: the model is asked again.
    Reset,
    /// A turn of the model is complete.
    Turn {
        /// The number of the turn in the run: 1, 2, 3 …
        iteration: u32,
        /// The text of the turn.
        text: String,
        /// The summary of the model's thinking.
        thoughts: Vec<String>,
        /// The calls that the model proposes.
        calls: Vec<ProposedCall>,
        /// The model that answered.
        model: String,
        /// The model that was asked.
        requested_model: String,
        /// Tokens of this turn.
        #[schema(value_type = names::Usage)]
        usage: Usage,
    },
    /// The model gave no usable answer.
    ModelFault {
        /// `unavailable`, `credentials`, `permission`, `no_such_model`, `quota`, `rejected`, `timeout`, `malformed`,
        /// `blocked`.
        #[schema(value_type = String)]
        fault: Cow<'static, str>,
    },
    /// A step of a flow starts.
    Step {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// The number of the step, from 0.
        step: u32,
        /// The number of the round, from 1.
        round: u32,
        /// The agent that executes the step.
        agent: String,
    },
    /// A tool is about to be called.
    ToolCall {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The tool.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// The arguments that are sent.
        #[schema(value_type = Object)]
        parameters: Arc<RawValue>,
    },
    /// An agent is about to be called. Its own events follow, under its own run.
    AgentCall {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The agent.
        #[schema(value_type = String)]
        agent: Arc<str>,
        /// The arguments.
        #[schema(value_type = Object)]
        parameters: Arc<RawValue>,
        /// The run of the agent.
        #[schema(value_type = String, format = "uuid")]
        child_run_id: RunId,
    },
    /// A call has its result.
    ToolResult {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The tool or the agent.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Did the call succeed?
        success: bool,
        /// The result; null if the call failed.
        #[schema(value_type = Option<Object>, required = true)]
        data: Option<Arc<RawValue>>,
        /// Why the call failed; null if it succeeded.
        #[schema(required = true)]
        error: Option<CallError>,
        /// Time from sending the call to its answer.
        duration_ms: u64,
    },
    /// A message from gavel to the model.
    Notice {
        /// The limit that was reached, if any.
        #[schema(value_type = Option<names::StopReason>, required = true)]
        reason: Option<StopReason>,
        /// The text.
        text: String,
    },
    /// A call requires approval.
    ApprovalRequired {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The tool.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Exactly the arguments of the call.
        #[schema(value_type = Object)]
        parameters: Arc<RawValue>,
        /// Why the call requires approval.
        reason: String,
    },
    /// An approval was resolved, or has expired.
    ApprovalResolved {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The tool.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Was the call approved?
        approved: bool,
        /// The approver; null if the request expired.
        #[schema(required = true)]
        by: Option<String>,
        /// Why it was not approved.
        #[schema(required = true)]
        reason: Option<String>,
    },
    /// A phase of a step begins.
    Phase {
        /// Which phase.
        #[schema(value_type = names::Phase)]
        phase: Phase,
        /// Is the model asked again, since its first answer was unusable?
        again: bool,
    },
    /// What the model concluded from a step of a task.
    Reflection {
        /// Was the reflection accepted? One that calls a task complete needs evidence.
        accepted: bool,
        /// Why it was not accepted, which the model learns.
        #[schema(required = true)]
        error: Option<String>,
        /// Does it call the task complete?
        is_task_complete: bool,
        /// What the step showed.
        summary: String,
        /// What shows that the task is complete.
        evidence: Vec<StepEvidence>,
        /// What later steps and tasks should know.
        learnings: Vec<String>,
        /// The changes of the plan that it asks for.
        #[schema(value_type = Vec<Object>)]
        plan_changes: Vec<TaskChange>,
        /// Why the task cannot be done.
        #[schema(required = true)]
        give_up: Option<String>,
    },
    /// A person settled a call in doubt of a run that this one called.
    OutcomeSettled {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Did it have its effect?
        happened: bool,
        /// The person.
        by: String,
    },
    /// The run waits for an approval, and continues when the approval is resolved.
    AwaitingConfirmation,
    /// The process that executed the run was shut down; another one continues it.
    HandedOver,
    /// Another process claimed the run, because the previous one died.
    Recovered,
    /// The paused run was resumed.
    Resumed,
    /// The run has ended. The last event, until the run is resumed.
    End {
        /// The final state of the run.
        run: Box<AgentRun>,
    },
}

sent! {
    /// A call that a model proposes.
    ProposedCall as "ProposedCall" {
        /// Position in the run.
        sequence: u32,
        /// The tool, the agent, or the function that ends the run.
        tool: Arc<str>,
        /// The arguments, as the model wrote them.
        #[shape(Shape::Object)]
        parameters: Arc<RawValue>,
    }
}

sent! {
    /// Why a call failed, in a form that is safe to show.
    CallError as "CallError" {
        /// A code from a closed list; docs/reference/outcomes.md explains it.
        code: FailureCode,
        /// The tool's own code, if it gave one. It is the server's word, in at most 64 bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_code: Option<String>,
        /// What the tool says besides: short words, numbers and truth values.
        #[shape(Shape::Object)]
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        details: BTreeMap<String, Value>,
        /// Text for people.
        message: String,
    }
}

impl From<&CallFailure> for CallError {
    fn from(failure: &CallFailure) -> Self {
        let own = failure.own.as_deref();
        Self {
            code: failure.code,
            tool_code: own.map(|own| own.code.clone()),
            details: own.map(|own| own.details.clone()).unwrap_or_default(),
            message: failure.for_callers().into_owned(),
        }
    }
}

/// An event, and where it comes from: an outermost run, or one that it called.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunEvent<E = Event> {
    /// The run: the watched one, or one that it called.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// When it was recorded; absent from what is not stored, and from what follows from other events alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub at: Option<Timestamp>,
    /// What happened.
    #[serde(flatten)]
    #[schema(inline)]
    pub what: E,
}

/// An event with its number, by which a reader continues after it (the SSE id). Events that are never stored have the
/// number of the event before them.
#[derive(Clone, Debug)]
pub struct Numbered<E> {
    /// Grows with every entry of the log that is an event.
    pub number: u64,
    /// The event.
    pub event: E,
}
