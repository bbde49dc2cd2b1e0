//! The events of a run, for every surface: what its readers see of its journal, and of the model's text as it arrives.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::decisions::ToolFailure;
use super::names;
use super::names::sent;
use super::runs::AgentRun;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, DecisionId, RunId};
use crate::domain::journal::Phase;

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
        /// The number of the step, from 0.
        step: u32,
        /// The number of the round, from 1.
        round: u32,
        /// The agent that executes the step.
        agent: String,
    },
    /// A tool is about to be called.
    ToolCall {
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
        error: Option<ToolFailure>,
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
        /// Why it was not approved.
        #[schema(required = true)]
        reason: Option<String>,
    },
    /// A phase of a step begins.
    Phase {
        /// Which phase.
        #[schema(value_type = names::Phase)]
        phase: Phase,
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

/// An event in the log of an outermost run: its own, or that of a run that it called.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunEvent {
    /// The run: the watched one, or one that it called.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// What happened.
    #[serde(flatten)]
    pub what: Event,
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
