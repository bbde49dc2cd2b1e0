//! The bodies of `/v1/chat` and the lines of its stream, as the API describes them.

use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::api::chat::AgentDecision;
use crate::api::events::Event;
use crate::http::error::Problem;
use crate::http::lines::{Failed, Silent};
use crate::http::openapi::lines::{Union, line};

/// A message with its whole context.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what surfaces/chat/request.rs reads by hand")]
pub(super) struct ChatRequest {
    /// The user's message. Not blank, no NUL; over 32 KiB the decision is `ERROR:USER_INPUT`.
    #[schema(min_length = 1)]
    message: String,
    /// The acting user; required unless the caller's token names one. No invisible characters, and not blank.
    #[schema(min_length = 1, max_length = 256)]
    user_id: Option<String>,
    /// The id of your conversation; absent: gavel generates one. No invisible characters, and not blank.
    #[schema(min_length = 1, max_length = 256)]
    conversation_id: Option<String>,
    /// Earlier messages, oldest first; over 200 entries or 256 KiB the decision is `ERROR:USER_INPUT`.
    history: Option<Vec<HistoryEntry>>,
    /// A subset of the constitution's allowlist; absent: the whole allowlist.
    #[schema(example = json!(["list_tasks"]))]
    tools: Option<Vec<String>>,
    /// IANA time zone, for "today" and "tomorrow"; absent: UTC.
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
}

/// An earlier message. No NUL.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what surfaces/chat/request.rs reads by hand")]
struct HistoryEntry {
    role: HistoryRole,
    content: String,
}

/// The author of the message.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes what surfaces/chat/request.rs reads by hand")]
enum HistoryRole {
    User,
    Assistant,
}

line! {
    /// A line of a chat's stream: an event, or the last line.
    StreamLine = Union::default().and::<Event>("Chat").and::<LastLine>("").and::<Failed<Problem<'_>>>("").and::<Silent>("")
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[serde(tag = "type")]
#[expect(
    dead_code,
    reason = "describes the line that http/lines.rs writes around a recorded decision"
)]
enum LastLine {
    /// The last line: the decision as `POST /v1/chat` returns it.
    Decision(AgentDecision),
}

/// A decision with one tool call.
pub(super) fn example() -> Value {
    json!({
        "decision_id": "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f",
        "conversation_id": "c-1",
        "decision_type": "INVOKE_TOOL",
        "outcome_category": "SUCCESS:TASK_COMPLETED",
        "response": "Added “call mom” to your tasks.",
        "tool_calls": [{
            "sequence": 1,
            "tool": "add_task",
            "parameters": {"description": "call mom"},
            "result": {"success": true, "data": {"id": "7"}, "error": null, "duration_ms": 4},
        }],
        "iterations": 2,
        "model": "gemini-3.8-flash",
        "requested_model": "gemini-3.7-flash",
        "usage": {"input_tokens": 1200, "output_tokens": 40, "thought_tokens": 0, "cached_tokens": 1000},
        "duration_ms": 1310,
    })
}
