//! The answer to a chat message.

use serde_json::value::RawValue;

use super::decisions::ToolFailure;
use super::names::sent;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::{ConversationId, DecisionId};

sent! {
    /// One tool call with its result, as the caller sees it.
    ToolCall as "ToolCall" {
        /// 1, 2, 3 … in the order the model proposed them.
        sequence: u32,
        /// The tool's own name on its server, or the name that the model used if the allowlist has no such tool.
        tool: String,
        /// The canonical arguments as sent, or the model's arguments if nothing was sent.
        #[shape(Shape::Object)]
        parameters: Box<RawValue>,
        /// The result.
        result: ToolResult,
    }
}

sent! {
    /// The result of a tool call.
    ToolResult as "ToolResult" {
        /// True only if the tool ran and reported no error.
        success: bool,
        /// What the tool returned; null if it returned nothing.
        data: Option<Box<RawValue>>,
        /// Why it failed; null if it succeeded.
        error: Option<ToolFailure>,
        /// Time from sending to the answer; 0 if nothing was sent.
        duration_ms: u64,
    }
}

sent! {
    /// The answer to one chat message.
    AgentDecision as "AgentDecision" {
        /// The id of the decision; `GET /v1/decisions/{id}` returns its log entry.
        decision_id: DecisionId,
        /// The caller's conversation id, or a generated one.
        conversation_id: ConversationId,
        /// The type of the decision.
        decision_type: DecisionType,
        /// The outcome of the decision.
        outcome_category: Outcome,
        /// The text for the user.
        response: String,
        /// Every call that the model proposed, in order.
        tool_calls: Vec<ToolCall>,
        /// Number of model calls, without retries.
        iterations: u32,
        /// The model that answered last; null if none did.
        model: Option<String>,
        /// The model that was asked. Google answers some names with another model.
        requested_model: String,
        /// Tokens over all iterations.
        usage: Usage,
        /// Wall-clock time from the parsed request to the answer.
        duration_ms: u64,
    }
}
