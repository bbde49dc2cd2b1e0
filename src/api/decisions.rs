//! The decision log and the tool-call log.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::filter::{Filter, Kind, Listed, names as names_of};
use super::names::{self, described_here};
use super::page;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::names::names;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;

names! {
    /// `open` until its outcome is recorded.
    RecordStatus {
        /// It is being decided.
        Open = "open",
        /// It has its outcome.
        Closed = "closed",
    }
}

names! {
    /// The state of a call; `in_doubt`: it may or may not have had its effect.
    CallStatus {
        /// It was sent, or is about to be.
        Started = "started",
        /// It succeeded.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was sent, and its outcome is unknown.
        InDoubt = "in_doubt",
        /// It was not sent.
        NotSent = "not_sent",
    }
}

described_here!(RecordStatus, CallStatus);

page! {
    /// A page of decisions.
    DecisionPage { decisions: DecisionRecord }
}

impl Listed for DecisionPage {
    const FILTERS: &'static [Filter] = &[
        Filter("decision_type", Kind::Names(names_of::<DecisionType>)),
        Filter("outcome_category", Kind::Names(names_of::<Outcome>)),
        Filter("intent", Kind::Text),
        Filter("user_id", Kind::Text),
        Filter("conversation_id", Kind::Text),
        Filter("surface", Kind::Text),
        Filter("model", Kind::Text),
        Filter("requested_model", Kind::Text),
        Filter("status", Kind::Names(names_of::<RecordStatus>)),
        Filter("created_at", Kind::Time),
        Filter("duration_ms", Kind::Duration),
        Filter("iterations", Kind::Number),
    ];
    const EXAMPLE: &'static str = "outcome_category = \"ERROR:*\"";
}

page! {
    /// A page of tool calls.
    ToolInvocationPage { tool_invocations: ToolInvocation }
}

impl Listed for ToolInvocationPage {
    const FILTERS: &'static [Filter] = &[
        Filter("tool", Kind::Text),
        Filter("server", Kind::Text),
        Filter("status", Kind::Names(names_of::<CallStatus>)),
        Filter("success", Kind::Success),
        Filter("decision_id", Kind::Text),
        Filter("created_at", Kind::Time),
        Filter("duration_ms", Kind::Duration),
        Filter("user_id", Kind::Text),
    ];
    const EXAMPLE: &'static str = "tool = \"add_task\" AND success = false";
}

/// A recorded decision. Values that are not kept or not known yet are null.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DecisionRecord {
    /// Its id.
    #[schema(format = "uuid")]
    pub decision_id: String,
    /// The caller's conversation.
    pub conversation_id: String,
    /// Its type; null while it is open.
    #[schema(value_type = Option<names::DecisionType>, required = true)]
    pub decision_type: Option<DecisionType>,
    /// Its outcome; null while it is open.
    #[schema(value_type = Option<names::Outcome>, required = true)]
    pub outcome_category: Option<Outcome>,
    /// Depending on `records.content`: the text, its keyed hash, or null.
    #[schema(required = true)]
    pub response: Option<String>,
    /// Model calls.
    #[schema(required = true)]
    pub iterations: Option<u32>,
    /// The model that answered last; null if none did.
    #[schema(required = true)]
    pub model: Option<String>,
    /// The model that was asked. Google answers some names with another model.
    pub requested_model: String,
    /// The tier that served the answer, such as `standard`, if Google names it.
    #[schema(required = true)]
    pub service_tier: Option<String>,
    /// Tokens of all model calls.
    pub usage: RecordedUsage,
    /// Time from the parsed request to the record of its outcome.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// The surface that decided: `chat`.
    pub surface: String,
    /// The acting user.
    pub user_id: String,
    /// Whether it has its outcome.
    pub status: RecordStatus,
    /// The first tool called, or `respond`, `clarify`, `refuse`, `none`.
    #[schema(required = true)]
    pub intent: Option<String>,
    /// As `response`, depending on `records.content`.
    #[schema(required = true)]
    pub message: Option<String>,
    /// When its request was parsed.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Hash of the definition in effect for this decision.
    pub definition_hash: String,
    /// Details of a failure, for operators.
    #[schema(required = true)]
    pub error_detail: Option<String>,
    /// The id of the request.
    pub request_id: String,
    /// Whether recovery closed the decision after its process had died.
    pub recovered: bool,
}

/// Token counts, null while unknown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordedUsage {
    /// Of what the model read.
    #[schema(required = true)]
    pub input_tokens: Option<u64>,
    /// Of what the model wrote.
    #[schema(required = true)]
    pub output_tokens: Option<u64>,
    /// Of the model's thoughts.
    #[schema(required = true)]
    pub thought_tokens: Option<u64>,
    /// Of what the model read, those that came from a cache.
    #[schema(required = true)]
    pub cached_tokens: Option<u64>,
}

/// A recorded decision, with its tool calls.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DecisionDetail {
    /// The decision.
    #[serde(flatten)]
    pub decision: DecisionRecord,
    /// Its tool calls, in order.
    pub tool_calls: Vec<ToolInvocation>,
}

/// A recorded tool call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ToolInvocation {
    /// Its id.
    #[schema(format = "uuid")]
    pub tool_invocation_id: String,
    /// Its decision.
    #[schema(format = "uuid")]
    pub decision_id: String,
    /// Its place in the decision: 0, 1, 2 …
    pub sequence: u32,
    /// The tool, or the name that the model used for one that is not on the allowlist.
    pub tool: String,
    /// Canonical arguments, depending on `records.content`.
    #[schema(value_type = serde_json::Value)]
    pub parameters: Option<Box<RawValue>>,
    /// Its result.
    pub result: RecordedResult,
    /// The tool's server.
    #[schema(required = true)]
    pub server: Option<String>,
    /// Its state.
    pub status: CallStatus,
    /// Digest of the tool's definition at the time of the call.
    #[schema(required = true)]
    pub tool_digest: Option<String>,
    /// Whether a call of the tool can change something.
    pub side_effect: bool,
    /// Hex SHA-256 of the canonical arguments; a keyed hash or null, depending on `records.content`.
    #[schema(required = true)]
    pub input_hash: Option<String>,
    /// The last policy decision: `allow`, `require_approval` or `deny`; null if the call ended before the policy
    /// decided.
    #[schema(required = true)]
    pub policy: Option<String>,
    /// The source of that decision: `rule NAME`, `grant ID`, `tool`, `definition`, `side_effects`, `parameters`,
    /// `session`, `plan`, `repositories`; null if no approval was required, or the call was invalid.
    #[schema(required = true)]
    pub decided_by: Option<String>,
    /// The acting user.
    pub user_id: String,
    /// When it was sent, or when its decision began if it was not.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was sent; null if it was not.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    pub started_at: Option<Timestamp>,
}

/// The result of a call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordedResult {
    /// Whether it succeeded.
    pub success: bool,
    /// Depending on `records.content`.
    #[schema(value_type = serde_json::Value)]
    pub data: Option<Box<RawValue>>,
    /// Why it did not succeed.
    #[schema(required = true)]
    pub error: Option<ToolFailure>,
    /// Time from sending to the answer.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
}

/// Why a tool call failed, in a form that is safe to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolFailure {
    /// A code from a closed list; docs/reference/outcomes.md explains it.
    #[schema(value_type = names::FailureCode)]
    pub code: FailureCode,
    /// Text for people.
    pub message: String,
}
