//! The span of a decision, named by OpenTelemetry's conventions for agents. It contains the decision's id and outcome,
//! but no content and no user.

use tracing::Span;
use tracing::field::{Empty, display};

use super::{Answer, ChatError};
use crate::engine::Engine;

/// Starts the span. `model` is the one that will be asked.
pub(super) fn begin(agent: &str, engine: &Engine, model: &str) -> Span {
    tracing::debug_span!(
        "decision",
        otel.name = %format_args!("invoke_agent {agent}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = engine.model.provider(),
        gen_ai.agent.name = agent,
        gen_ai.request.model = model,
        gavel.decision.id = Empty,
        gavel.decision.type = Empty,
        gavel.decision.outcome = Empty,
        gavel.decision.iterations = Empty,
        gavel.decision.replayed = Empty,
        error.type = Empty,
    )
}

/// Records the outcome. A repeated answer is no decision of this request, so it has no id here.
pub(super) fn ended(span: &Span, answer: &Result<Answer, ChatError>) {
    if span.is_disabled() {
        return;
    }
    match answer {
        Ok(Answer { decision: None, .. }) => {
            span.record("gavel.decision.replayed", true);
        }
        Ok(Answer {
            decision: Some(decision),
            ..
        }) => {
            let outcome = decision.outcome_category;
            span.record("gavel.decision.id", display(decision.decision_id));
            span.record("gavel.decision.type", decision.decision_type.as_str());
            span.record("gavel.decision.outcome", outcome.as_str());
            span.record("gavel.decision.iterations", i64::from(decision.iterations));
            if outcome.as_str().starts_with("ERROR:") {
                failed(span, outcome.as_str());
            }
        }
        Err(error) => {
            if let ChatError::OutcomeUnrecorded(id) = error {
                span.record("gavel.decision.id", display(id));
            }
            failed(span, kind(error));
        }
    }
}

fn failed(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

fn kind(error: &ChatError) -> &'static str {
    match error {
        ChatError::Invalid(_) => "invalid",
        ChatError::RecordUnavailable => "record_unavailable",
        ChatError::OutcomeUnrecorded(_) => "outcome_unrecorded",
        ChatError::KeyReused => "key_reused",
        ChatError::StillRunning => "still_running",
    }
}
