//! What a run tells while it goes on: its journal, seen from outside.

use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use utoipa::ToSchema;

use super::decision::ToolFailure;
use super::ids::DecisionId;

/// One event of a run. Serialized as one JSON object with a `type`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The request was accepted; its record's id.
    Started {
        /// The decision to come.
        #[schema(value_type = String, format = "uuid")]
        decision_id: DecisionId,
    },
    /// More words of the model. Never stored; a slow reader may miss some, and gets them whole in `turn`.
    Delta {
        /// The words.
        text: String,
    },
    /// More of the model's thinking, no part of its answer; only where the constitution asks for it. Never stored; a slow reader
    /// may miss some.
    Thought {
        /// The words.
        text: String,
    },
    /// The words and thoughts of this turn so far are void: the model is asked again.
    Reset,
    /// A turn of the model is complete.
    Turn {
        /// 1, 2, 3 …
        iteration: u32,
        /// Its words, all of them.
        text: String,
    },
    /// A tool call is about to be sent.
    ToolCall {
        /// Place in the run.
        sequence: u32,
        /// The tool's name.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Canonical arguments.
        #[schema(value_type = Object)]
        parameters: Arc<RawValue>,
    },
    /// A tool call has its result.
    ToolResult {
        /// Place in the run.
        sequence: u32,
        /// The tool's name.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Did it do its job?
        success: bool,
        /// Why not.
        #[schema(required = true)]
        error: Option<ToolFailure>,
        /// From sending to the answer.
        duration_ms: u64,
    },
}

/// An event with its number in the run (the SSE id). Deltas carry the number of the entry before.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Grows with every entry of the journal that is told.
    pub number: u64,
    /// What happened.
    pub event: Event,
}
