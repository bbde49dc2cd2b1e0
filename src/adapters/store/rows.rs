//! Converts records to the values of a row, in the order of `statements.rs`.

use super::config::ContentMode;
use super::content::capped;
use super::db::Value;
use crate::domain::ids::InstanceId;
use crate::domain::tool::FailureCode;
use crate::ports::records::{CallRecord, ClosedDecision, Intent, OpenDecision, PolicyOutcome};

/// Values that apply to every row.
pub(super) struct Writing {
    pub(super) owner: Value,
    pub(super) serves: Value,
    pub(super) content: ContentMode,
}

impl Writing {
    pub(super) fn new(owner: InstanceId, serves: Option<String>, content: ContentMode) -> Self {
        Self {
            owner: Value::text(&owner.to_string()),
            serves: Value::Text(serves.map(Into::into)),
            content,
        }
    }

    /// The 11 values of an open row that this process owns.
    pub(super) fn open(&self, row: &OpenDecision, into: &mut Vec<Value>) {
        self.open_for(row, self.owner.clone(), into);
    }

    /// As [`Writing::open`], for another owner: a run owns its decision.
    pub(super) fn open_for(&self, row: &OpenDecision, owner: Value, into: &mut Vec<Value>) {
        into.extend([
            id(row.id),
            Value::text(row.tenant.as_str()),
            Value::text(row.surface),
            Value::text(row.user.as_str()),
            Value::text(row.conversation.as_str()),
            self.content.shared(&row.message),
            Value::shared(&row.definition_hash),
            Value::shared(&row.requested_model),
            Value::shared(&row.request_id),
            Value::Int(Some(row.created_at)),
            owner,
        ]);
    }

    /// The 24 values of a closed row.
    pub(super) fn close(&self, row: &ClosedDecision, into: &mut Vec<Value>) {
        self.close_for(row, self.owner.clone(), into);
    }

    /// As [`Writing::close`], for another owner.
    pub(super) fn close_for(&self, row: &ClosedDecision, owner: Value, into: &mut Vec<Value>) {
        self.open_for(&row.open, owner, into);
        into.extend([
            Value::text(row.decision_type.as_str()),
            Value::text(row.outcome.as_str()),
            Value::text(capped(&row.intent)),
            self.content.shared(&row.response),
            row.model.as_ref().map_or(Value::Text(None), Value::shared),
            row.service_tier.as_ref().map_or(Value::Text(None), Value::shared),
            Value::Int(Some(i64::from(row.iterations))),
            tokens(row.usage.input_tokens),
            tokens(row.usage.output_tokens),
            tokens(row.usage.thought_tokens),
            tokens(row.usage.cached_tokens),
            // A clock that was set back must not make the row invalid.
            Value::Int(Some(row.duration_us.max(0))),
            row.error_detail.as_ref().map_or(Value::Text(None), Value::shared),
        ]);
    }

    /// The 16 values of a started call.
    pub(super) fn intent(&self, intent: &Intent, into: &mut Vec<Value>) {
        let decision = id(intent.decision);
        into.extend([
            decision.clone(),
            Value::Int(Some(i64::from(intent.sequence))),
            id(intent.id),
            Value::text(intent.tenant.as_str()),
            decision,
            Value::text(capped(&intent.tool.name)),
            Value::shared(&intent.tool.server),
            Value::shared(&intent.tool.digest),
            Value::Bool(intent.tool.side_effect),
            self.content.json(&intent.arguments),
            self.content.fingerprint(&intent.arguments),
            effect(intent.policy.as_ref()),
            decided_by(intent.policy.as_ref()),
            Value::shared(&intent.idempotency_key),
            Value::Int(Some(intent.started_at)),
            Value::Int(Some(intent.started_at)),
        ]);
    }

    /// The 21 values of a call that ended.
    pub(super) fn call(&self, decision: &OpenDecision, call: &CallRecord, into: &mut Vec<Value>) {
        let status = status(call);
        // A call that was sent has a start time. If it is unknown, the decision's time is used.
        let started = (status != "not_sent").then(|| call.started_at.unwrap_or(decision.created_at));
        let none = Value::Text(None);
        let (tool, server, digest) = match &call.tool {
            Some(tool) => (
                Value::text(capped(&tool.name)),
                Value::shared(&tool.server),
                Value::shared(&tool.digest),
            ),
            None => (self.content.unknown_tool(&call.name), none.clone(), none.clone()),
        };
        let (result, code, message) = match &call.outcome {
            Ok(data) => (self.content.json(data), none.clone(), none),
            Err(failure) => (
                none,
                Value::text(failure.code.as_str()),
                self.content.failure(failure.code, &failure.message),
            ),
        };
        into.extend([
            id(decision.id),
            Value::Int(Some(i64::from(call.sequence))),
            id(call.id),
            Value::text(decision.tenant.as_str()),
            Value::text(decision.user.as_str()),
            tool,
            server,
            digest,
            Value::Bool(call.tool.as_ref().is_some_and(|tool| tool.side_effect)),
            self.content.json(&call.arguments),
            self.content.fingerprint(&call.arguments),
            effect(call.policy.as_ref()),
            decided_by(call.policy.as_ref()),
            call.idempotency_key.as_ref().map_or(Value::Text(None), Value::shared),
            Value::Int(Some(call.started_at.unwrap_or(decision.created_at))),
            Value::text(status),
            Value::Int(started),
            Value::Int(Some(call.duration_us.max(0))),
            result,
            code,
            message,
        ]);
    }
}

/// The status of the row. A start time shows that the call was sent; `in_doubt` takes precedence.
fn status(call: &CallRecord) -> &'static str {
    match (&call.outcome, call.started_at) {
        (Ok(_), _) => "completed",
        (Err(failure), _) if failure.code == FailureCode::InDoubt => "in_doubt",
        (Err(_), Some(_)) => "failed",
        (Err(_), None) => "not_sent",
    }
}

fn effect(policy: Option<&PolicyOutcome>) -> Value {
    policy.map_or(Value::Text(None), |policy| Value::text(policy.effect.as_str()))
}

fn decided_by(policy: Option<&PolicyOutcome>) -> Value {
    let by = policy.and_then(|policy| policy.by.as_ref());
    by.map_or(Value::Text(None), Value::shared)
}

fn id(id: impl std::fmt::Display) -> Value {
    Value::text(&id.to_string())
}

fn tokens(count: u64) -> Value {
    Value::Int(Some(i64::try_from(count).unwrap_or(i64::MAX)))
}
