//! A run's journal projected into the answer and the record.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::derive::{self, Call, Derived};
use crate::domain::canonical;
use crate::domain::decision::{AgentDecision, ToolCall, ToolFailure, ToolResult};
use crate::domain::journal::{CallFailure, Target};
use crate::domain::nesting;
use crate::domain::tool::FailureCode;
use crate::engine::{Run, iterations};
use crate::ports::records::{CallRecord, ClosedDecision, StoredAnswer};

/// The answer.
pub(super) fn decision(
    run: &Run,
    derived: &Derived,
    response: String,
    model: String,
    duration: Duration,
) -> AgentDecision {
    AgentDecision {
        decision_id: run.record.id,
        conversation_id: run.record.conversation.clone(),
        decision_type: derived.decision_type,
        outcome_category: derived.outcome,
        response,
        tool_calls: derive::calls(&run.journal).iter().map(tool_call).collect(),
        iterations: iterations(&run.journal),
        model,
        usage: derive::usage(&run.journal),
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Its JSON.
pub(super) fn body(decision: &AgentDecision) -> String {
    serde_json::to_string(decision).unwrap_or_else(|error| unreachable!("a decision prints as JSON: {error}"))
}

/// The record of commit 2.
pub(super) fn closed(
    run: &Run,
    derived: &Derived,
    decision: &AgentDecision,
    duration: Duration,
    answer: Option<StoredAnswer>,
) -> ClosedDecision {
    ClosedDecision {
        open: run.record.clone(),
        decision_type: derived.decision_type,
        outcome: derived.outcome,
        intent: Arc::clone(&derived.intent),
        response: Arc::from(decision.response.as_str()),
        model: Arc::from(decision.model.as_str()),
        iterations: decision.iterations,
        usage: decision.usage,
        duration_us: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
        error_detail: run.fault_detail.clone(),
        calls: derive::calls(&run.journal)
            .iter()
            .map(|call| call_record(run, call))
            .collect(),
        answer,
        opened: run.opened,
    }
}

fn tool_call(call: &Call<'_>) -> ToolCall {
    let (data, error) = match call.result.map(|result| &result.outcome) {
        Some(Ok(data)) => (Some(RawValue::to_owned(data)), None),
        Some(Err(failure)) => (
            None,
            Some(ToolFailure {
                code: failure.code.as_str(),
                message: failure.message.clone(),
            }),
        ),
        None => (
            None,
            Some(ToolFailure {
                code: FailureCode::LimitReached.as_str(),
                message: not_run().message,
            }),
        ),
    };
    ToolCall {
        sequence: call.proposed.sequence,
        tool: call.name().to_string(),
        parameters: RawValue::to_owned(&arguments(call)),
        result: ToolResult {
            success: error.is_none(),
            data,
            error,
            duration_ms: call
                .result
                .map_or(0, |result| u64::try_from(result.duration_us / 1000).unwrap_or(0)),
        },
    }
}

fn call_record(run: &Run, call: &Call<'_>) -> CallRecord {
    let id = call.proposed.id;
    CallRecord {
        id,
        sequence: call.proposed.sequence,
        tool: match &call.proposed.target {
            Target::Tool(tool) => Some(Arc::clone(tool)),
            Target::Verdict(_) | Target::Unknown => None,
        },
        name: Arc::from(call.proposed.call.name.as_str()),
        arguments: arguments(call),
        idempotency_key: call.started.then(|| Arc::from(id.to_string())),
        started_at: call.started_at,
        duration_us: call.result.map_or(0, |result| result.duration_us),
        outcome: call
            .result
            .map_or_else(|| Err(not_run()), |result| result.outcome.clone()),
        intended: run.intended.contains(&id),
    }
}

/// What was allowed, or else what the model gave. Arguments that nest too deeply were not allowed, and are left out: many a
/// reader of the reply or of the record could not read past them.
fn arguments(call: &Call<'_>) -> Arc<RawValue> {
    let given = &call.proposed.call.args;
    match call.arguments {
        Some(allowed) => Arc::clone(allowed),
        None if nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) => Arc::from(given.clone()),
        None => Arc::from(canonical::to_raw(&Value::Object(Map::new()))),
    }
}

/// The only way a call has no result: the run was abandoned because its intents were not durable.
fn not_run() -> CallFailure {
    CallFailure {
        code: FailureCode::NotRecorded,
        message: "the record could not be made durable, so this call was not sent".to_owned(),
    }
}
