//! Tool calls: judge, record, call, record. The only caller of [`Tools::call`].
//!
//! [`Tools::call`]: crate::ports::tools::Tools::call

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use tracing::{Instrument, Span};

use super::events::tool_name;
use super::policy::{self, Bounds};
use super::{Engine, Run, spans};
use crate::domain::event::Event;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Judgement, Proposed, Target};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::records::{Intent, RecordError};
use crate::ports::tools::{CallReply, CallRequest};
use crate::telemetry;

/// With less time left a call is not sent a second time.
const WORTH_A_SECOND: Duration = Duration::from_secs(1);

/// A call that may run.
struct Cleared<'a> {
    call: &'a Proposed,
    tool: &'a Arc<Tool>,
    arguments: Arc<RawValue>,
    key: String,
}

/// Judges `calls`, makes the intents of their side effects durable in one commit, and runs them.
///
/// Side effects run one after another in the model's order; neighbours that only read run at once.
pub(super) async fn act(engine: &Engine, run: &mut Run, calls: &[Proposed]) -> Result<(), RecordError> {
    let cleared = judge_all(run, calls);
    intend(engine, run, &cleared).await?;
    for group in cleared.chunk_by(|a, b| !a.tool.side_effect && !b.tool.side_effect) {
        for one in group {
            started(engine, run, one);
        }
        let results = join_all(group.iter().map(|one| traced(engine, run, one))).await;
        for (one, result) in group.iter().zip(results) {
            run.push(Entry::Result {
                call: one.call.id,
                result,
            });
        }
    }
    Ok(())
}

fn judge_all<'a>(run: &mut Run, calls: &'a [Proposed]) -> Vec<Cleared<'a>> {
    let mut cleared = Vec::with_capacity(calls.len());
    for call in calls {
        let user = run.record.user.clone();
        let bounds = Bounds {
            user: &user,
            approval: run.approval,
            can_wait: run.can_wait,
        };
        let judgement = policy::judge(call, bounds);
        run.push(Entry::Judged {
            call: call.id,
            judgement: judgement.clone(),
        });
        match (judgement, &call.target) {
            (Judgement::Allow { arguments }, Target::Tool(tool)) => {
                cleared.push(Cleared {
                    call,
                    tool,
                    arguments,
                    key: call.id.to_string(),
                });
            }
            (Judgement::Refuse { code, message }, _) => {
                tracing::info!(decision_id = %run.record.id, code = code.as_str(), "a proposed call was not run");
                run.push(failed(call.id, code, message));
            }
            // Waits for a person; `next` suspends on it.
            (Judgement::RequireApproval { .. }, _) => {}
            (Judgement::Allow { .. }, _) => {
                run.push(failed(call.id, FailureCode::UnknownTool, "not a tool".to_owned()));
            }
        }
    }
    cleared
}

fn failed(call: ActionId, code: FailureCode, message: String) -> Entry {
    Entry::Result {
        call,
        result: CallResult {
            outcome: Err(CallFailure { code, message }),
            sent: false,
            duration_us: 0,
        },
    }
}

/// Commit 1: what is about to be done is durable before it is done.
async fn intend(engine: &Engine, run: &mut Run, cleared: &[Cleared<'_>]) -> Result<(), RecordError> {
    let now = engine.clock.now_us();
    let intents: Vec<_> = cleared
        .iter()
        .filter(|one| one.tool.side_effect)
        .map(|one| Intent {
            id: one.call.id,
            decision: run.record.id,
            tenant: run.record.tenant.clone(),
            sequence: one.call.sequence,
            tool: Arc::clone(one.tool),
            arguments: Arc::clone(&one.arguments),
            idempotency_key: Arc::from(one.key.as_str()),
            started_at: now,
        })
        .collect();
    if intents.is_empty() {
        return Ok(());
    }
    run.intended.extend(intents.iter().map(|intent| intent.id));
    if run.opened {
        engine.recorder.intend(intents).await
    } else {
        // Set before the commit: when its outcome is not known, recovery must find the row.
        run.opened = true;
        engine.recorder.open(run.record.clone(), intents).await
    }
}

fn started(engine: &Engine, run: &mut Run, one: &Cleared<'_>) {
    if let Some(sink) = &mut run.events {
        sink.tell(Event::ToolCall {
            sequence: one.call.sequence,
            tool: tool_name(one.call),
            parameters: Arc::clone(&one.arguments),
        });
    }
    run.push(Entry::Started {
        call: one.call.id,
        at_us: engine.clock.now_us(),
    });
}

/// The call in a span of its own.
async fn traced(engine: &Engine, run: &Run, one: &Cleared<'_>) -> CallResult {
    let span = spans::tool_call(one.tool, one.call.id);
    let result = call(engine, run, one).instrument(span.clone()).await;
    spans::called(&span, &result);
    result
}

/// Sends the call. When it is not known whether it arrived and a second one can do no harm, it is sent once more in the
/// time that is left of it.
async fn call(engine: &Engine, run: &Run, one: &Cleared<'_>) -> CallResult {
    let began = engine.clock.instant();
    let took = || engine.clock.instant().saturating_duration_since(began);
    let time = run
        .limits
        .tool_time(one.tool.timeout, began.saturating_duration_since(run.began));
    let reply = if time.is_zero() {
        let message = "no time was left for this call; it was not sent".to_owned();
        CallReply::NotSent(CallFailure {
            code: FailureCode::LimitReached,
            message,
        })
    } else {
        attempt(engine, run, one, time).await
    };
    let (outcome, sent) = match reply {
        CallReply::Data(data) => (Ok(data), true),
        CallReply::NotSent(failure) => (Err(failure), false),
        CallReply::Failed(failure) => (Err(failure), true),
        CallReply::Unknown(failure) => {
            let left = time.saturating_sub(took());
            (once_more(engine, run, one, left, failure).await, true)
        }
    };
    CallResult {
        outcome,
        sent,
        duration_us: i64::try_from(took().as_micros()).unwrap_or(i64::MAX),
    }
}

async fn attempt(engine: &Engine, run: &Run, one: &Cleared<'_>, time: Duration) -> CallReply {
    // The server's work hangs under this call's span, or without one under the caller's.
    let own_place = telemetry::traceparent(&Span::current());
    let request = CallRequest {
        tool: one.tool,
        arguments: &one.arguments,
        user: &run.record.user,
        origin: run.record.surface,
        run_id: &run.record.id.to_string(),
        action_id: one.call.id,
        idempotency_key: &one.key,
        traceparent: own_place.as_deref().or(run.traceparent.as_deref()),
        timeout: time,
        cancel: &run.cancel,
    };
    engine.tools.call(request).await
}

/// After an attempt of which nobody knows what it did. Only the tool's data settles that: a second attempt that did not
/// reach it says nothing of the first. Nor does a tool's error: a second delete finds nothing because the first has worked,
/// and who cannot reach its database now cannot see what stands there under our key.
async fn once_more(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    left: Duration,
    first: CallFailure,
) -> Result<Arc<RawValue>, CallFailure> {
    if one.tool.repeatable() && left > WORTH_A_SECOND && !run.cancel.is_cancelled() {
        tracing::info!(decision_id = %run.record.id, tool = %one.tool.name, "no answer to a repeatable call; sent again");
        match attempt(engine, run, one, left).await {
            CallReply::Data(data) => return Ok(data),
            CallReply::Failed(failure) if !one.tool.side_effect => return Err(failure),
            CallReply::NotSent(_) | CallReply::Failed(_) | CallReply::Unknown(_) => {}
        }
    }
    Err(if one.tool.side_effect { in_doubt(&first) } else { first })
}

fn in_doubt(failure: &CallFailure) -> CallFailure {
    CallFailure {
        code: FailureCode::InDoubt,
        message: format!(
            "it is not known whether this call had its effect ({}); do not repeat it, tell the person",
            failure.message
        ),
    }
}
