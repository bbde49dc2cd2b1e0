//! The rows of the decision log and the tool-call log, as the API describes them. The store writes them as JSON.
#![expect(dead_code, reason = "describes what adapters/store writes")]

use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::decision::{DecisionType, Outcome, ToolFailure};

/// A recorded decision. Values that are not kept or not known yet are null.
#[derive(ToSchema)]
pub(super) struct DecisionRecord {
    #[schema(format = "uuid")]
    decision_id: String,
    conversation_id: String,
    #[schema(required = true)]
    decision_type: Option<DecisionType>,
    #[schema(required = true)]
    outcome_category: Option<Outcome>,
    /// Depending on `records.content`: the text, its keyed hash, or null.
    #[schema(required = true)]
    response: Option<String>,
    #[schema(required = true)]
    iterations: Option<u32>,
    /// The model that answered last; null if none did.
    #[schema(required = true)]
    model: Option<String>,
    /// The model that was asked. Google answers some names with another model.
    requested_model: String,
    /// The tier that served the answer, such as `standard`, if Google names it.
    #[schema(required = true)]
    service_tier: Option<String>,
    usage: RecordedUsage,
    #[schema(required = true)]
    duration_ms: Option<u64>,
    /// The surface that decided: `chat`.
    surface: String,
    user_id: String,
    status: RecordStatus,
    /// The first tool called, or `respond`, `clarify`, `refuse`, `none`.
    #[schema(required = true)]
    intent: Option<String>,
    /// As `response`, depending on `records.content`.
    #[schema(required = true)]
    message: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Hash of the definition in effect for this decision.
    definition_hash: String,
    /// Details of a failure, for operators.
    #[schema(required = true)]
    error_detail: Option<String>,
    request_id: String,
    /// Whether recovery closed the decision after its process had died.
    recovered: bool,
}

/// Token counts, null while unknown.
#[derive(ToSchema)]
struct RecordedUsage {
    #[schema(required = true)]
    input_tokens: Option<u64>,
    #[schema(required = true)]
    output_tokens: Option<u64>,
    #[schema(required = true)]
    thought_tokens: Option<u64>,
    #[schema(required = true)]
    cached_tokens: Option<u64>,
}

/// `open` until its outcome is recorded.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
enum RecordStatus {
    Open,
    Closed,
}

/// A recorded decision, with its tool calls.
#[derive(ToSchema)]
pub(super) struct DecisionDetail {
    #[serde(flatten)]
    decision: DecisionRecord,
    tool_calls: Vec<RecordedCall>,
}

/// A recorded tool call.
#[derive(ToSchema)]
struct RecordedCall {
    sequence: u32,
    tool: String,
    /// Canonical arguments, depending on `records.content`.
    parameters: Value,
    result: RecordedResult,
    #[schema(required = true)]
    server: Option<String>,
    status: CallStatus,
    /// Digest of the tool's definition at the time of the call.
    #[schema(required = true)]
    tool_digest: Option<String>,
    side_effect: bool,
    /// Hex SHA-256 of the canonical arguments; a keyed hash or null, depending on `records.content`.
    #[schema(required = true)]
    input_hash: Option<String>,
    /// The last policy decision: `allow`, `require_approval` or `deny`; null if the call ended before the policy
    /// decided.
    #[schema(required = true)]
    policy: Option<String>,
    /// The source of that decision: `rule NAME`, `grant ID`, `tool`, `definition`, `side_effects`, `parameters`,
    /// `session`, `plan`, `repositories`; null if no approval was required, or the call was invalid.
    #[schema(required = true)]
    decided_by: Option<String>,
}

/// The result of a call.
#[derive(ToSchema)]
struct RecordedResult {
    success: bool,
    /// Depending on `records.content`.
    data: Value,
    #[schema(required = true)]
    error: Option<ToolFailure>,
    #[schema(required = true)]
    duration_ms: Option<u64>,
}

/// The state of a call; `in_doubt`: it may or may not have had its effect.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum CallStatus {
    Started,
    Completed,
    Failed,
    InDoubt,
    NotSent,
}

/// A recorded tool call, listed without its decision.
#[derive(ToSchema)]
pub(super) struct ToolInvocation {
    #[serde(flatten)]
    call: RecordedCall,
    #[schema(format = "uuid")]
    tool_invocation_id: String,
    #[schema(format = "uuid")]
    decision_id: String,
    user_id: String,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime, required = true)]
    started_at: Option<String>,
}
