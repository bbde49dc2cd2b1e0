//! Projects a run's journal into the answer.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::api::chat::{AgentDecision, ToolCall, ToolResult};
use crate::api::decisions::ToolFailure;
use crate::domain::tool::FailureCode;
use crate::engine::derive::{self, Derived};
use crate::engine::ledger::Call;
use crate::engine::{Record, iterations, record};

/// Builds the answer.
pub(super) fn decision(record: &Record, derived: &Derived, response: String, duration: Duration) -> AgentDecision {
    AgentDecision {
        decision_id: record.decision.id,
        conversation_id: record.decision.conversation.clone(),
        decision_type: derived.decision_type,
        outcome_category: derived.outcome,
        response,
        tool_calls: record.journal.ledger().of_tools().map(tool_call).collect(),
        iterations: iterations(&record.journal),
        model: derive::served(&record.journal).and_then(|served| Some(served.model.as_deref()?.to_owned())),
        requested_model: record.decision.requested_model.to_string(),
        usage: derive::usage(&record.journal),
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    }
}

/// The answer as JSON.
pub(super) fn body(decision: &AgentDecision) -> String {
    serde_json::to_string(decision).unwrap_or_else(|error| unreachable!("a decision prints as JSON: {error}"))
}

fn tool_call(call: Call<'_>) -> ToolCall {
    let (data, error) = match call.result().map(|result| &result.outcome) {
        Some(Ok(data)) => (Some(RawValue::to_owned(data)), None),
        Some(Err(failure)) => (
            None,
            Some(ToolFailure {
                code: failure.code,
                message: failure.for_callers().into_owned(),
            }),
        ),
        None => (
            None,
            Some(ToolFailure {
                code: FailureCode::LimitReached,
                message: record::not_run().message,
            }),
        ),
    };
    ToolCall {
        sequence: call.proposed.sequence,
        tool: call.name().to_string(),
        parameters: RawValue::to_owned(&call.arguments()),
        result: ToolResult {
            success: error.is_none(),
            data,
            error,
            duration_ms: call
                .result()
                .map_or(0, |result| u64::try_from(result.duration_us / 1000).unwrap_or(0)),
        },
    }
}
