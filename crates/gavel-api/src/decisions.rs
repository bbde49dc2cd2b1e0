//! The decision log and the tool-call log.

use serde_json::value::RawValue;

use super::filter::{Filter, Kind, Listed};
use super::names::{names, sent};
use super::page;
use crate::domain::decision::{DecisionType, LimitReached, Outcome, Usage};
use crate::domain::ids::{ErasureId, UserId};
use crate::domain::policy::Lost;
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

page! {
    /// A page of decisions.
    DecisionPage { decisions: DecisionRecord }
}

impl Listed for DecisionPage {
    const FILTERS: &'static [Filter] = &[
        Filter("decision_type", Kind::Names(DecisionType::WORDS)),
        Filter("outcome_category", Kind::Names(Outcome::WORDS)),
        Filter("intent", Kind::Text),
        Filter("user_id", Kind::Text),
        Filter("conversation_id", Kind::Text),
        Filter("surface", Kind::Text),
        Filter("model", Kind::Text),
        Filter("requested_model", Kind::Text),
        Filter("agent_id", Kind::Text),
        Filter("status", Kind::Names(RecordStatus::WORDS)),
        Filter("created_at", Kind::Time),
        Filter("closed_at", Kind::Time),
        Filter("duration_ms", Kind::Duration),
        Filter("human_ms", Kind::Duration),
        Filter("model_ms", Kind::Duration),
        Filter("tool_ms", Kind::Duration),
        Filter("iterations", Kind::Number),
        Filter("attempts", Kind::Number),
        Filter("history_entries", Kind::Number),
        Filter("input_tokens", Kind::Number),
        Filter("output_tokens", Kind::Number),
        Filter("thought_tokens", Kind::Number),
        Filter("cached_tokens", Kind::Number),
        Filter("cost_nano", Kind::Number),
        Filter("recovered", Kind::Bool),
        Filter("decision_id", Kind::Text),
        Filter("definition_hash", Kind::Text),
        Filter("toolset_hash", Kind::Text),
        Filter("history_hash", Kind::Text),
        Filter("request_id", Kind::Text),
        Filter("trace_id", Kind::Text),
        Filter("service_tier", Kind::Text),
        Filter("finish_reason", Kind::Text),
        Filter("price_id", Kind::Text),
        Filter("time_zone", Kind::Text),
        Filter("tools_subset", Kind::Text),
        Filter("message", Kind::Text),
        Filter("response", Kind::Text),
        Filter("error_detail", Kind::Text),
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
        Filter("status", Kind::Names(CallStatus::WORDS)),
        Filter("success", Kind::Success),
        Filter("decision_id", Kind::Text),
        Filter("created_at", Kind::Time),
        Filter("started_at", Kind::Time),
        Filter("duration_ms", Kind::Duration),
        Filter("user_id", Kind::Text),
        Filter("error_code", Kind::Names(FailureCode::WORDS)),
        Filter("policy", Kind::Text),
        Filter("decided_by", Kind::Text),
        Filter("tool_digest", Kind::Text),
        Filter("side_effect", Kind::Bool),
        Filter("input_hash", Kind::Text),
        Filter("argument_bytes", Kind::Number),
        Filter("result_bytes", Kind::Number),
        Filter("tool_invocation_id", Kind::Text),
        Filter("sequence", Kind::Number),
        Filter("words", Kind::Text),
        Filter("parameters", Kind::Text),
        Filter("result", Kind::Text),
    ];
    const EXAMPLE: &'static str = "tool = \"add_task\" AND success = false";
}

sent! {
    /// A recorded decision. Values that are not kept or not known yet are null.
    DecisionRecord as "DecisionRecord" {
        /// Its id.
        #[shape(Shape::UUID)]
        decision_id: String,
        /// The caller's conversation.
        conversation_id: String,
        /// Its type; null while it is open.
        decision_type: Option<DecisionType>,
        /// Its outcome; null while it is open.
        outcome_category: Option<Outcome>,
        /// The reply, depending on `records.content`: the text, its keyed hash, or null.
        response: Option<String>,
        /// Model calls.
        iterations: Option<u32>,
        /// Why the last answer of the model ended, in the provider's word, such as `STOP`.
        finish_reason: Option<String>,
        /// Requests that the model calls took.
        attempts: Option<u32>,
        /// Each model call, in order; empty while it is open.
        turns: Vec<Turn>,
        /// The limits that it reached.
        limits_reached: Vec<LimitReached>,
        /// The model that answered last; null if none did.
        model: Option<String>,
        /// The model that was asked. Google answers some names with another model.
        requested_model: String,
        /// The tier that served the answer, such as `standard`, if Google names it.
        service_tier: Option<String>,
        /// Tokens of all model calls; null while it is open.
        usage: Option<Usage>,
        /// What all model calls cost, in billionths of a US dollar; null if that of one is not known.
        cost_nano: Option<u64>,
        /// The prices of the model calls, each once, separated by commas.
        price_id: Option<String>,
        /// Time from the parsed request to the record of its outcome.
        duration_ms: Option<u64>,
        /// The part of it in which approvers were waited for.
        human_ms: Option<u64>,
        /// The part of it in which the model was waited for.
        model_ms: Option<u64>,
        /// The part of it in which tools, and agents that were called, were waited for. What is left is gavel's own.
        tool_ms: Option<u64>,
        /// When its outcome was recorded.
        closed_at: Option<Timestamp>,
        /// The surface that decided: `chat`.
        surface: String,
        /// The agent; null for a chat.
        agent_id: Option<String>,
        /// The user's time zone, by its IANA name; null if the request had none.
        time_zone: Option<String>,
        /// The tools that the request asked for; null for all.
        tools_subset: Option<Vec<String>>,
        /// The lines of earlier conversation that came with the request.
        history_entries: u32,
        /// Hash of the functions that the model was offered; null if it was not asked.
        toolset_hash: Option<String>,
        /// Hash of the earlier conversation; null if there was none, or if no content is kept.
        history_hash: Option<String>,
        /// The W3C trace of the request, if it is traced.
        trace_id: Option<String>,
        /// The acting user.
        user_id: String,
        /// Whether it has its outcome.
        status: RecordStatus,
        /// The first tool called, or `respond`, `clarify`, `refuse`, `none`.
        intent: Option<String>,
        /// The user's message, depending on `records.content`: the text, its keyed hash, or null.
        message: Option<String>,
        /// When its request was parsed.
        created_at: Timestamp,
        /// Hash of the definition in effect for this decision.
        definition_hash: String,
        /// Details of a failure, for operators.
        error_detail: Option<String>,
        /// The id of the request.
        request_id: String,
        /// Whether recovery closed the decision after its process had died.
        recovered: bool,
    }
}

sent! {
    /// A model call of a decision.
    #[derive(PartialEq, Eq)]
    Turn as "ModelCall" {
        /// The model that was asked.
        requested_model: String,
        /// The model that answered; null if none did.
        model: Option<String>,
        /// The tier that served, if the provider names it.
        service_tier: Option<String>,
        /// Why the answer ended, in the provider's word.
        finish_reason: Option<String>,
        /// Requests that it took.
        attempts: u32,
        /// When the model was asked.
        started_at: Timestamp,
        /// Time until the answer was complete.
        duration_ms: u64,
        /// Time until the first text of a streamed answer.
        first_text_ms: Option<u64>,
        /// Its tokens.
        usage: Usage,
        /// What it cost, in billionths of a US dollar, at the price of the model that answered; null if that is not known.
        cost_nano: Option<u64>,
        /// That price: `MODEL@VALID_FROM:INPUT/CACHED/OUTPUT`, in US dollars for 1,000,000 tokens.
        price_id: Option<String>,
    }
}

sent! {
    /// A recorded decision, with its tool calls.
    DecisionDetail as "DecisionDetail" {
        /// The decision.
        #[serde(flatten)]
        decision: DecisionRecord,
        /// Its tool calls, in order.
        tool_calls: Vec<ToolInvocation>,
    }
}

sent! {
    /// What the model was asked with at first. What the log does not keep is null.
    AskedWith as "DecisionRequest" {
        /// The decision.
        #[shape(Shape::UUID)]
        decision_id: String,
        /// The model that was asked.
        requested_model: String,
        /// The definition in its canonical form: persona, model and sampling, limits.
        #[shape(Shape::Optional(Box::new(Shape::Object)))]
        definition: Option<Box<RawValue>>,
        /// `functions`: what the model was offered, as declared; `missing`: what could not be offered, and why.
        #[shape(Shape::Optional(Box::new(Shape::Object)))]
        toolset: Option<Box<RawValue>>,
        /// What was said before, oldest first.
        history: Vec<Said>,
        /// The message, depending on `records.content`. In a chat the model also saw the user's date above it.
        message: Option<String>,
    }
}

sent! {
    /// A message of an earlier conversation.
    Said as "EarlierMessage" {
        /// `user` or `assistant`.
        role: String,
        /// Depending on `records.content`.
        content: Option<String>,
        /// Its hash, keyed where content is hashed.
        hash: String,
    }
}

sent! {
    /// A recorded tool call.
    ToolInvocation as "ToolInvocation" {
        /// Its id.
        #[shape(Shape::UUID)]
        tool_invocation_id: String,
        /// Its decision.
        #[shape(Shape::UUID)]
        decision_id: String,
        /// Its place in the decision: 0, 1, 2 …
        sequence: u32,
        /// The model call that proposed it, from 1; null for a step of a flow.
        turn: Option<u32>,
        /// The tool, or the name that the model used for one that is not on the allowlist.
        tool: String,
        /// What the model said beside it, with the first call of a turn; depending on `records.content`.
        words: Option<String>,
        /// Canonical arguments, depending on `records.content`.
        parameters: Option<Box<RawValue>>,
        /// Their bytes, whatever of them is kept.
        argument_bytes: u64,
        /// Its result.
        result: RecordedResult,
        /// The tool's server.
        server: Option<String>,
        /// Its state.
        status: CallStatus,
        /// Digest of the tool's definition at the time of the call.
        tool_digest: Option<String>,
        /// Whether a call of the tool can change something.
        side_effect: bool,
        /// Hex SHA-256 of the canonical arguments; a keyed hash or null, depending on `records.content`.
        input_hash: Option<String>,
        /// The last policy decision: `allow`, `require_approval` or `deny`; null if the call ended before the policy
        /// decided.
        policy: Option<String>,
        /// The source of that decision: `rule NAME`, `grant ID`, `tool`, `definition`, `side_effects`, `parameters`,
        /// `session`, `plan`, `repositories`; null if no approval was required, or the call was invalid.
        decided_by: Option<String>,
        /// The rules and other checks of the policy that matched the call, and lost.
        lost: Vec<Lost>,
        /// The acting user.
        user_id: String,
        /// When it was sent, or when its decision began if it was not.
        created_at: Timestamp,
        /// When it was sent; null if it was not.
        started_at: Option<Timestamp>,
    }
}

sent! {
    /// The result of a call.
    RecordedResult as "RecordedResult" {
        /// Whether it succeeded.
        success: bool,
        /// Its data, depending on `records.content`.
        data: Option<Box<RawValue>>,
        /// The bytes of its data, whatever of it is kept.
        bytes: Option<u64>,
        /// Why it did not succeed.
        error: Option<ToolFailure>,
        /// Time from sending to the answer.
        duration_ms: Option<u64>,
    }
}

sent! {
    /// Why a tool call failed, in a form that is safe to show.
    #[derive(PartialEq, Eq)]
    ToolFailure as "ToolFailure" {
        /// A code from a closed list; docs/reference/outcomes.md explains it.
        code: FailureCode,
        /// Text for people.
        message: String,
    }
}

sent! {
    /// `POST /v1/erasures`.
    #[serde(deny_unknown_fields)]
    ErasureBody as "ErasureBody" {
        /// Whose texts are to be erased.
        user_id: UserId,
    }
}

sent! {
    /// What an erasure did. Rows, times, counts and the audit chain remain.
    #[derive(PartialEq, Eq)]
    Erased as "Erased" {
        /// Its id, which the entry of the audit log has.
        erasure_id: ErasureId,
        /// Decisions without texts now.
        decisions: u64,
        /// Tool calls without texts now.
        tool_invocations: u64,
        /// Decisions and runs that are in progress or in doubt and keep their texts: erase again once they have ended.
        left: u64,
    }
}
