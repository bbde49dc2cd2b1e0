//! A chat message, and its answer.

use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::decisions::ToolFailure;
use super::names::sent;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::{ConversationId, DecisionId};
use crate::domain::object::Object;

/// A message with its whole context.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChatRequest)]
pub struct ChatBody {
    /// The user's message. Not blank, no NUL; over 32 KiB the decision is `ERROR:USER_INPUT`.
    #[schema(min_length = 1, pattern = r"\S")]
    pub message: String,
    /// The acting user; required unless the caller's token names one. No invisible characters, and not blank.
    #[schema(min_length = 1, max_length = 256)]
    pub user_id: Option<String>,
    /// The id of your conversation; absent: gavel generates one. No invisible characters, and not blank.
    #[schema(min_length = 1, max_length = 256)]
    pub conversation_id: Option<String>,
    /// Earlier messages, oldest first; over 200 entries or 256 KiB the decision is `ERROR:USER_INPUT`.
    #[schema(value_type = Option<Vec<HistoryEntry>>)]
    pub history: Option<Vec<Object<HistoryEntry>>>,
    /// A subset of the constitution's allowlist; absent: the whole allowlist.
    #[schema(example = json!(["list_tasks"]))]
    pub tools: Option<Vec<String>>,
    /// IANA time zone, for "today" and "tomorrow"; absent: UTC.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

/// An earlier message. No NUL.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names say it, and the API description shows the same")]
pub struct HistoryEntry {
    pub role: HistoryRole,
    pub content: String,
}

/// The author of the message.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it, and the API description shows the same")]
pub enum HistoryRole {
    User,
    Assistant,
}

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
