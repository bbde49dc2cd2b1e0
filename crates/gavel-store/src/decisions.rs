//! The columns of the decision log and of the tool-call log: how each is written, what answers show, and what lists can
//! be filtered by. The migrations have the same columns, and `api::DecisionRecord` and `api::ToolInvocation` read them.

use std::sync::LazyLock;

use super::config::capped;
use super::db::Value;
use super::table::{Column, Table, Writes};
use crate::api::decisions::CallStatus;
use crate::domain::policy::Lost;
use crate::domain::tool::FailureCode;
use crate::ports::records::{ClosedCall, ClosedDecision, OpenCall, OpenDecision, PolicyOutcome, Turn};

type Decision = Column<OpenDecision, ClosedDecision>;

/// The columns of `decision_log`.
#[rustfmt::skip] // A line for each.
pub(super) static DECISION: Table<OpenDecision, ClosedDecision> = Table { name: "decision_log", columns: &[
    Decision::open("id", |open, _| open.id.into()).shown_as("decision_id"),
    Decision::open("tenant", |open, _| open.tenant.as_str().into()).viewed("The tenant."),
    Decision::open("surface", |open, _| open.surface.into()).shown(),
    Decision::open("user_id", |open, _| open.user.as_str().into()).shown(),
    Decision::open("conversation_id", |open, _| open.conversation.as_str().into()).shown(),
    Decision::open("message", |open, with| with.content.shared(&open.message)).shown().content(),
    Decision::open("definition_hash", |open, _| (&open.definition_hash).into()).shown(),
    Decision::open("requested_model", |open, _| (&open.requested_model).into()).shown(),
    Decision::open("agent_id", |open, _| open.agent_id.as_ref().into()).shown(),
    Decision::open("time_zone", |open, _| open.time_zone.as_ref().into()).shown(),
    Decision::open("tools_subset", |open, _| open.tools_subset.as_ref().map(Value::list).unwrap_or(Value::Text(None)))
        .shown(),
    Decision::open("history_entries", |open, _| open.history_entries.into()).shown(),
    Decision::close("toolset_hash", |closed, _| closed.asked.as_ref().map(|asked| &asked.toolset.hash).into()).shown(),
    Decision::close("history_hash", |closed, with| {
        closed.asked.as_ref().and_then(|asked| with.content.history_hash(&asked.history)).as_ref().into()
    })
    .shown(),
    Decision::open("trace_id", |open, _| open.trace_id.as_ref().into()).shown(),
    Decision::open("request_id", |open, _| (&open.request_id).into()).shown(),
    Decision::open("created_at", |open, _| open.created_at.into()).shown(),
    Decision::open("owner", |_, with| with.owner.clone()),
    Decision::state("status", "'open'", "'closed'").shown(),
    Decision::state("recovered", "FALSE", "FALSE").shown(),
    Decision::close("decision_type", |closed, _| closed.decision_type.as_str().into())
        .shown(),
    Decision::close("outcome_category", |closed, _| closed.outcome.as_str().into()).shown(),
    Decision::close("intent", |closed, _| capped(&closed.intent).into()).shown(),
    Decision::close("response", |closed, with| with.content.shared(&closed.response)).shown().content(),
    Decision::close("model", |closed, _| closed.model.as_ref().into()).shown(),
    Decision::close("service_tier", |closed, _| closed.service_tier.as_ref().into()).shown(),
    Decision::close("iterations", |closed, _| (closed.turns.len() as u64).into()).shown(),
    Decision::close("finish_reason", |closed, _| {
        closed.turns.last().and_then(|turn| turn.finish_reason.as_ref()).into()
    })
    .shown(),
    Decision::close("attempts", |closed, _| closed.turns.iter().map(|turn| turn.attempts).sum::<u32>().into()).shown(),
    Decision::close("turns", |closed, _| Value::json(&closed.turns)).shown(),
    Decision::close("limits_reached", |closed, _| Value::json(&closed.limits)).shown(),
    Decision::close("input_tokens", |closed, _| closed.usage.input_tokens.into()).shown_as("usage.input_tokens"),
    Decision::close("output_tokens", |closed, _| closed.usage.output_tokens.into()).shown_as("usage.output_tokens"),
    Decision::close("thought_tokens", |closed, _| closed.usage.thought_tokens.into()).shown_as("usage.thought_tokens"),
    Decision::close("cached_tokens", |closed, _| closed.usage.cached_tokens.into()).shown_as("usage.cached_tokens"),
    Decision::close("cost_nano", |closed, _| cost(&closed.turns).map_or(Value::Int(None), Value::from)).shown(),
    Decision::close("price_id", |closed, _| price_ids(&closed.turns).into()).shown(),
    // A clock that was set back must not make the row invalid.
    Decision::close("duration_us", |closed, _| closed.duration_us.max(0).into())
        .shown_by("duration_ms", "duration_us / 1000"),
    Decision::close("human_us", |closed, _| closed.times.human_us.into()).shown_by("human_ms", "human_us / 1000"),
    Decision::close("model_us", |closed, _| closed.times.model_us.into()).shown_by("model_ms", "model_us / 1000"),
    Decision::close("tool_us", |closed, _| closed.times.tool_us.into()).shown_by("tool_ms", "tool_us / 1000"),
    Decision::close("closed_at", |closed, _| closed.closed_at.into()).shown(),
    Decision::close("error_detail", |closed, _| closed.error_detail.as_ref().into()).shown().content(),
] };

/// What the model calls cost; `None` if that of one is not known.
fn cost(turns: &[Turn]) -> Option<u64> {
    turns
        .iter()
        .try_fold(0_u64, |sum, turn| Some(sum.saturating_add(turn.cost_nano?)))
}

/// Each price of the model calls once, in their order.
fn price_ids(turns: &[Turn]) -> Option<String> {
    let mut ids: Vec<&str> = Vec::new();
    for id in turns.iter().filter_map(|turn| turn.price_id.as_deref()) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    (!ids.is_empty()).then(|| ids.join(", "))
}

type Call = Column<OpenCall, ClosedCall>;

/// The columns of `tool_invocation_log`.
#[rustfmt::skip] // A line for each.
pub(super) static CALL: Table<OpenCall, ClosedCall> = Table { name: "tool_invocation_log", columns: &[
    Call::open("decision_id", |open, _| open.decision.into()).shown(),
    Call::open("sequence", |open, _| open.sequence.into()).shown(),
    Call::open("id", |open, _| open.id.into()).shown_as("tool_invocation_id"),
    Call::open("turn", |open, _| open.turn.map_or(Value::Int(None), Value::from)).shown(),
    Call::open("tenant", |open, _| open.tenant.as_str().into()).viewed("The tenant."),
    // The decision's. Without a decision there is none, and the row is rejected.
    Call::derived("user_id", "(SELECT user_id FROM decision_log WHERE id = ?)", |open, _| open.decision.into())
        .shown(),
    Call::open("tool", |open, with| match &open.tool {
        Some(tool) => capped(&tool.name).into(),
        None => with.content.unknown_tool(&open.name),
    })
    .shown(),
    Call::open("server", |open, _| open.tool.as_ref().map(|tool| &tool.server).into()).shown(),
    Call::open("tool_digest", |open, _| open.tool.as_ref().map(|tool| &tool.digest).into()).shown(),
    Call::open("side_effect", |open, _| Value::Bool(open.has_side_effect())).shown(),
    Call::open("words", |open, with| open.words.as_ref().map_or(Value::Text(None), |words| with.content.text(words)))
        .shown()
        .content(),
    Call::open("arguments", |open, with| with.content.json(&open.arguments)).shown_as("parameters").content(),
    Call::open("argument_bytes", |open, _| (open.arguments.get().len() as u64).into()).shown(),
    Call::open("input_hash", |open, with| with.content.fingerprint(&open.arguments)).shown(),
    Call::open("policy", |open, _| open.policy.as_ref().map(|policy| policy.effect.as_str()).into()).shown(),
    Call::open("decided_by", |open, _| open.policy.as_ref().and_then(|policy| policy.by.as_ref()).into()).shown(),
    Call::open("lost", |open, _| Value::json(lost(open.policy.as_ref()))).shown(),
    Call::open("idempotency_key", |open, _| open.idempotency_key.as_ref().into()),
    Call::open("created_at", |open, _| open.created_at.into()).shown(),
    Call::both("status", |_, _| CallStatus::Started.as_str().into(), |closed, _| status(closed).as_str().into())
        .shown(),
    Call::both(
        "started_at",
        |open, _| open.created_at.into(),
        // What was sent has a start. If it is unknown, the decision's is used.
        |closed, _| {
            let was_sent = status(closed) != CallStatus::NotSent;
            was_sent.then(|| closed.started_at.unwrap_or(closed.open.created_at)).into()
        },
    )
    .shown(),
    Call::elsewhere("status").shown_by("result.success", "status = 'completed'"),
    Call::close("result", |closed, with| match &closed.outcome {
        Ok(data) => with.content.json(data),
        Err(_) => Value::Text(None),
    })
    .shown_as("result.data")
    .content(),
    Call::close("result_bytes", |closed, _| {
        closed.outcome.as_ref().ok().and_then(|data| i64::try_from(data.get().len()).ok()).into()
    })
    .shown_as("result.bytes"),
    Call::close("error_code", |closed, _| closed.outcome.as_ref().err().map(|failure| failure.code.as_str()).into())
        .shown_as("result.error.code"),
    Call::close("error_message", |closed, with| match &closed.outcome {
        Ok(_) => Value::Text(None),
        Err(failure) => with.content.failure(failure.code, &failure.message),
    })
    .shown_by("result.error.message", "CASE WHEN error_code IS NOT NULL THEN COALESCE(error_message, '') END")
    .named("error_message")
    .content(),
    Call::close("duration_us", |closed, _| closed.duration_us.max(0).into())
        .shown_by("result.duration_ms", "duration_us / 1000"),
] };

/// What matched a call, and did not decide.
pub(super) fn lost(policy: Option<&PolicyOutcome>) -> &[Lost] {
    policy.map_or(&[], |policy| &policy.lost)
}

/// The owner of a decision knows its outcome, which replaces what recovery assumed when the lease expired during an outage.
pub(super) static DECISIONS: LazyLock<Writes<OpenDecision, ClosedDecision>> = LazyLock::new(|| {
    Writes::new(
        &DECISION,
        "id",
        |closed| &closed.open,
        "decision_log.owner = excluded.owner",
    )
});

pub(super) static CALLS: LazyLock<Writes<OpenCall, ClosedCall>> = LazyLock::new(|| {
    Writes::new(
        &CALL,
        "decision_id, sequence",
        |closed| &closed.open,
        "tool_invocation_log.id = excluded.id",
    )
});

/// The status of a call that has ended. A start shows that it was sent; `in_doubt` takes precedence.
fn status(call: &ClosedCall) -> CallStatus {
    match (&call.outcome, call.started_at) {
        (Ok(_), _) => CallStatus::Completed,
        (Err(failure), _) if failure.code == FailureCode::InDoubt => CallStatus::InDoubt,
        (Err(_), Some(_)) => CallStatus::Failed,
        (Err(_), None) => CallStatus::NotSent,
    }
}

#[cfg(test)]
mod cost_tests {
    use super::*;
    use crate::domain::decision::Usage;
    use crate::domain::time::Timestamp;

    fn turn(cost_nano: Option<u64>, price: &str) -> Turn {
        Turn {
            requested_model: "m".to_owned(),
            model: Some("m".to_owned()),
            service_tier: None,
            finish_reason: None,
            attempts: 1,
            started_at: Timestamp(0),
            duration_ms: 1,
            first_text_ms: None,
            usage: Usage::default(),
            cost_nano,
            price_id: cost_nano.map(|_| price.to_owned()),
        }
    }

    #[test]
    fn a_decision_costs_what_its_model_calls_cost_if_all_are_known() {
        assert_eq!((cost(&[]), price_ids(&[])), (Some(0), None));
        let turns = [turn(Some(2), "b"), turn(Some(u64::MAX), "a"), turn(Some(3), "b")];
        assert_eq!((cost(&turns[..1]), cost(&turns)), (Some(2), Some(u64::MAX)));
        assert_eq!(price_ids(&turns).as_deref(), Some("b, a"));
        let turns = [turn(Some(2), "b"), turn(None, "a")];
        assert_eq!((cost(&turns), price_ids(&turns).as_deref()), (None, Some("b")));
    }
}
