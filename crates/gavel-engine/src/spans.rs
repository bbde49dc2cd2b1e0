//! Trace spans of a run: one for each model call and each tool call, named by OpenTelemetry's conventions for
//! generative AI and MCP. They contain names, numbers and codes, but no content.
//!
//! Their level is debug, so they are disabled unless a collector is configured. Creating a disabled span is a single
//! comparison, and its fields are not evaluated.

use tracing::Span;
use tracing::field::Empty;

use super::run::{Engine, Run};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallResult, ModelTurn};
use crate::domain::tool::Tool;
use crate::ports::model::ModelFault;

/// Starts the span of a model call with all its attempts.
pub(super) fn model_call(engine: &Engine, run: &Run) -> Span {
    let model = || engine.model.requested(&run.context.definition.model);
    tracing::debug_span!(
        "model_call",
        otel.name = %format_args!("generate_content {}", model()),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "generate_content",
        gen_ai.provider.name = engine.model.provider(),
        gen_ai.request.model = model(),
        gen_ai.request.stream = run.context.events.is_some(),
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        error.type = Empty,
    )
}

/// Records the outcome of a model call.
pub(super) fn answered(span: &Span, outcome: &Result<ModelTurn, ModelFault>) {
    if span.is_disabled() {
        return;
    }
    let (usage, served) = match outcome {
        Ok(turn) => (turn.usage, &turn.served),
        Err(fault) => {
            failed(span, fault.kind.as_str());
            (fault.usage, &*fault.served)
        }
    };
    if let Some(model) = &served.model {
        span.record("gen_ai.response.model", &**model);
    }
    // OpenTelemetry counts thoughts as output.
    let output = usage.output_tokens.saturating_add(usage.thought_tokens);
    let counts = [
        ("gen_ai.usage.input_tokens", usage.input_tokens),
        ("gen_ai.usage.output_tokens", output),
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.thought_tokens),
    ];
    for (name, count) in counts {
        // Signed, like OpenTelemetry's numbers; an unsigned value would be exported as text.
        span.record(name, i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Starts the span of an agent's run, or of the part that this process executes.
pub(super) fn agent(name: &str, run: RunId, engine: &Engine) -> Span {
    tracing::debug_span!(
        "agent_run",
        otel.name = %format_args!("invoke_agent {name}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = engine.model.provider(),
        gen_ai.agent.name = name,
        gavel.run.id = %run,
        gavel.run.status = Empty,
        error.type = Empty,
    )
}

/// Records the outcome of an agent's run.
pub(super) fn agent_ended(span: &Span, status: RunStatus) {
    span.record("gavel.run.status", status.as_str());
    if status == RunStatus::Failed {
        failed(span, status.as_str());
    }
}

/// Starts the span of a tool call with all its attempts.
pub(super) fn tool_call(tool: &Tool, call: ActionId) -> Span {
    tracing::debug_span!(
        "tool_call",
        otel.name = %format_args!("execute_tool {}", tool.name),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &*tool.name,
        gen_ai.tool.type = "extension",
        gen_ai.tool.call.id = %call,
        mcp.method.name = "tools/call",
        gavel.mcp.server = &*tool.server,
        error.type = Empty,
    )
}

/// Records the outcome of a tool call.
pub(super) fn called(span: &Span, result: &CallResult) {
    if !span.is_disabled()
        && let Err(failure) = &result.outcome
    {
        failed(span, failure.code.as_str());
    }
}

fn failed(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}
