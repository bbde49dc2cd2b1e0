//! The events of a run in progress: its journal as callers see it.

use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use utoipa::ToSchema;

use super::decision::ToolFailure;
use super::ids::DecisionId;

/// One event of a run: a JSON object with a `type`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The request was accepted.
    Started {
        /// The id of the decision that will follow.
        #[schema(value_type = String, format = "uuid")]
        decision_id: DecisionId,
    },
    /// More text of the model. Never stored. A slow reader may miss some; `turn` has the whole text.
    Delta {
        /// The text.
        text: String,
    },
    /// More of the model's thinking, which is not part of its answer. Sent only if the constitution enables it. Never
    /// stored; a slow reader may miss some.
    Thought {
        /// The text.
        text: String,
    },
    /// The text and thoughts of this turn so far are void: the model is called again.
    Reset,
    /// A turn of the model is complete.
    Turn {
        /// 1, 2, 3 …
        iteration: u32,
        /// Its whole text.
        text: String,
    },
    /// A tool call is about to be sent.
    ToolCall {
        /// Position in the run.
        sequence: u32,
        /// The tool's name.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Canonical arguments.
        #[schema(value_type = Object)]
        parameters: Arc<RawValue>,
    },
    /// A tool call has a result.
    ToolResult {
        /// Position in the run.
        sequence: u32,
        /// The tool's name.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Whether the call succeeded.
        success: bool,
        /// Why it failed; null if it succeeded.
        #[schema(required = true)]
        error: Option<ToolFailure>,
        /// Time from sending the call to its answer.
        duration_ms: u64,
    },
}

/// An event with its number in the run (the SSE id). Deltas have the number of the entry before them.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Grows with every journal entry that becomes an event.
    pub number: u64,
    /// The event.
    pub event: Event,
}
