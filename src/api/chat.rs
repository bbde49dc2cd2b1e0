//! The answer to a chat message.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::decisions::ToolFailure;
use super::names;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::{ConversationId, DecisionId};

/// One tool call with its result, as the caller sees it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// 1, 2, 3 … in the order the model proposed them.
    pub sequence: u32,
    /// The tool's own name on its server, or the name that the model used if the allowlist has no such tool.
    pub tool: String,
    /// The canonical arguments as sent, or the model's arguments if nothing was sent.
    #[schema(value_type = Object)]
    pub parameters: Box<RawValue>,
    /// The result.
    pub result: ToolResult,
}

/// The result of a tool call.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ToolResult {
    /// True only if the tool ran and reported no error.
    pub success: bool,
    /// What the tool returned; null if it returned nothing.
    #[schema(value_type = Option<serde_json::Value>, required = true)]
    pub data: Option<Box<RawValue>>,
    /// Why it failed; null if it succeeded.
    #[schema(required = true)]
    pub error: Option<ToolFailure>,
    /// Time from sending to the answer; 0 if nothing was sent.
    pub duration_ms: u64,
}

/// The answer to one chat message.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentDecision {
    /// The id of the decision; `GET /v1/decisions/{id}` returns its log entry.
    #[schema(value_type = String, format = "uuid")]
    pub decision_id: DecisionId,
    /// The caller's conversation id, or a generated one.
    #[schema(value_type = String)]
    pub conversation_id: ConversationId,
    /// The type of the decision.
    #[schema(value_type = names::DecisionType)]
    pub decision_type: DecisionType,
    /// The outcome of the decision.
    #[schema(value_type = names::Outcome)]
    pub outcome_category: Outcome,
    /// The text for the user.
    pub response: String,
    /// Every call that the model proposed, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Number of model calls, without retries.
    pub iterations: u32,
    /// The model that answered last; null if none did.
    #[schema(required = true)]
    pub model: Option<String>,
    /// The model that was asked. Google answers some names with another model.
    pub requested_model: String,
    /// Tokens over all iterations.
    #[schema(value_type = names::Usage)]
    pub usage: Usage,
    /// Wall-clock time from the parsed request to the answer.
    pub duration_ms: u64,
}
