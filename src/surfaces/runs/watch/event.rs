//! The events of a run, as readers get them.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::agent_run::{AgentRun, StopReason};
use crate::domain::decision::{ToolFailure, Usage};
use crate::domain::ids::{ActionId, RunId};

/// A reader's position: the number of the last entry received. For a call of an agent, the number within that agent's
/// run follows, and so on. Written with dots; it is the id of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub(super) Vec<u64>);

impl Cursor {
    /// Parses `12` or `12.5`; `None` if invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Digits only: the parser would accept a sign.
        let number = |part: &str| {
            part.parse()
                .ok()
                .filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let numbers = text.split('.').map(number);
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        (numbers.len() <= 16).then_some(Self(numbers))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// One event of a run. Serialized as one JSON object with a `type` and the `run_id` it belongs to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunEvent {
    /// The run: the watched one, or one that it called.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// What happened.
    #[serde(flatten)]
    pub what: RunEventKind,
}

/// The kind of an event, with its data.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEventKind {
    /// The task, as the model gets it.
    Input {
        /// The text.
        text: String,
    },
    /// More text of the model. The whole text follows with `turn`.
    Delta {
        /// The text.
        text: String,
    },
    /// More of the model's thinking, which is not part of its answer. The whole thinking follows with `turn`.
    Thought {
        /// The text.
        text: String,
    },
    /// The text and thoughts of this turn so far are void: the model is asked again.
    Reset,
    /// A turn of the model is complete.
    Turn {
        /// The text of the turn.
        text: String,
        /// The summary of the model's thinking.
        thoughts: Vec<String>,
        /// The calls that the model proposes.
        calls: Vec<ProposedCall>,
        /// The model that answered.
        model: String,
        /// Tokens of this turn.
        usage: Usage,
    },
    /// The model gave no usable answer.
    ModelFault {
        /// `unavailable`, `credentials`, `permission`, `no_such_model`, `quota`, `rejected`, `timeout`, `malformed`,
        /// `blocked`.
        fault: &'static str,
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
    /// A tool is called.
    ToolCall {
        /// Position in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// The arguments.
        #[schema(value_type = Object)]
        parameters: Value,
    },
    /// An agent is called. Its own events follow, under its own run.
    AgentCall {
        /// Position in the run.
        sequence: u32,
        /// The agent.
        agent: String,
        /// The arguments.
        #[schema(value_type = Object)]
        parameters: Value,
        /// The run of the agent.
        #[schema(value_type = String, format = "uuid")]
        child_run_id: RunId,
    },
    /// A call has its result.
    ToolResult {
        /// Position in the run.
        sequence: u32,
        /// The tool or the agent.
        tool: String,
        /// Did the call succeed?
        success: bool,
        /// The result.
        #[schema(value_type = Option<Object>, required = true)]
        data: Option<Value>,
        /// Why the call failed.
        #[schema(required = true)]
        error: Option<ToolFailure>,
        /// Time from sending to the answer.
        duration_ms: u64,
    },
    /// A message from gavel to the model.
    Notice {
        /// The limit that was reached, if any.
        #[schema(required = true)]
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
        tool: String,
        /// Exactly the arguments of the call.
        #[schema(value_type = Object)]
        parameters: Value,
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
        tool: String,
        /// Was the call approved?
        approved: bool,
        /// Why it was not approved.
        #[schema(required = true)]
        reason: Option<String>,
    },
    /// The run waits for an approval, and continues when the approval is resolved.
    AwaitingConfirmation,
    /// The process that executed the run was shut down; another one continues it.
    HandedOver,
    /// Another process claimed the run, because the previous one died.
    Recovered,
    /// The paused run was resumed.
    Resumed,
    /// The run has ended. This is the last event.
    End {
        /// The final state of the run.
        run: Box<AgentRun>,
    },
}

/// A call that a model proposes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProposedCall {
    /// Position in the run.
    pub sequence: u32,
    /// The tool, the agent, or the function that ends the run.
    pub tool: String,
    /// The arguments, as the model wrote them.
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// An event with the reader's position. Live events have no position of their own.
#[derive(Clone, Debug)]
pub struct PlacedEvent {
    /// The position to continue after this event.
    pub cursor: Cursor,
    /// What happened.
    pub event: RunEvent,
}

impl PlacedEvent {
    pub(super) const fn new(cursor: Vec<u64>, run_id: RunId, what: RunEventKind) -> Self {
        Self {
            cursor: Cursor(cursor),
            event: RunEvent { run_id, what },
        }
    }
}
