//! Sends one call, and repeats it if that is safe. The only caller of [`Tools::call`].
//!
//! [`Tools::call`]: crate::ports::tools::Tools::call

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tracing::{Instrument, Span};

use super::{Callee, Cleared, LEASE_LOST, called, cleared, decide, facts, offered, started};
use crate::domain::ids::PlanningSessionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, PolicyDecision, Proposed, Target};
use crate::domain::tool::{FailureCode, Tool};
use crate::gate::{Attempt, Facts, Offered};
use crate::ledger::Call;
use crate::limits::Stop;
use crate::ports::tools::{CallReply, CallRequest};
use crate::run::{Engine, Run};
use crate::{approvals, spans, trace, write};

/// A call is not sent a second time with less time left.
const WORTH_A_SECOND: Duration = Duration::from_secs(1);
/// The pauses between further attempts at a call whose outcome stays unknown.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// Makes the call in a span of its own. `lost`: how its first attempt ended, if a process that has died made it.
pub(super) async fn traced(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    tool: &Arc<Tool>,
    lost: Option<CallFailure>,
) -> CallResult {
    let span = spans::tool_call(tool, one.call.id);
    let result = call(engine, run, one, tool, lost).instrument(span.clone()).await;
    spans::called(&span, &result);
    result
}

/// Sends the call. If its outcome is unknown and repeating it is harmless, it is sent again in the time left.
async fn call(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    tool: &Arc<Tool>,
    lost: Option<CallFailure>,
) -> CallResult {
    let began = engine.clock.instant();
    let took = || engine.clock.instant().saturating_duration_since(began);
    let time = run.context.limits.tool_time(tool.timeout, run.record.elapsed(began));
    let reply = match lost {
        Some(failure) => CallReply::Unknown(failure),
        None if time.is_zero() => {
            let message = "no time was left for this call; it was not sent";
            CallReply::NotSent(CallFailure::new(FailureCode::LimitReached, message))
        }
        None => attempt(engine, run, one, tool, time, Nth::First).await,
    };
    let (outcome, sent) = match reply {
        CallReply::Data(data) => (Ok(data), true),
        CallReply::NotSent(failure) => (Err(failure), false),
        CallReply::Failed(failure) => (Err(failure), true),
        CallReply::Unknown(failure) => {
            let left = time.saturating_sub(took());
            (retry_call(engine, run, one, tool, left, failure).await, true)
        }
    };
    CallResult {
        sent,
        ..CallResult::sent(outcome, took())
    }
}

/// Which attempt at a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nth {
    First,
    Further,
}

/// Sends the call, unless another process may hold the run by now and send it too.
pub(super) async fn attempt(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    tool: &Arc<Tool>,
    time: Duration,
    nth: Nth,
) -> CallReply {
    if !run.record.is_ours() {
        return CallReply::NotSent(CallFailure::new(FailureCode::Unavailable, LEASE_LOST.to_owned()));
    }
    // The server's spans are children of this call's span, or else of the caller's.
    let own_place = trace::traceparent(&Span::current());
    let ledger = run.record.journal.ledger();
    let state = ledger.call(one.call.id);
    let repository = repository(run);
    let repositories = || engine.policy.repositories.of(&run.record.decision.tenant);
    let repositories = (tool.settings.repositories == Some(true)).then(repositories).flatten();
    let shown = state.filter(|_| run.can_wait()).and_then(Call::details);
    let request = CallRequest {
        tool,
        arguments: &one.arguments,
        tenant: run.record.decision.tenant.as_str(),
        user: &tool.user(&run.record.decision.tenant, &run.record.decision.user),
        origin: run.record.decision.surface,
        run_id: &run.record.decision.id.to_string(),
        action_id: one.call.id,
        idempotency_key: &one.key,
        first_attempt_us: state.filter(|_| nth == Nth::Further).and_then(Call::first_started_us),
        account: shown.and_then(|details| details.account.as_deref()),
        session: session(run),
        repository: repository.as_deref(),
        repositories: repositories.as_deref(),
        deadline_us: run.context.limits.until.map(|until| until.at_us),
        traceparent: own_place.as_deref().or(run.context.traceparent.as_deref()),
        timeout: time,
        cancel: &run.context.cancel,
        is_approved: state.is_some_and(Call::is_by_user),
        hold: run.record.log().map(|log| &log.hold),
    };
    engine.tools.call(request).await
}

/// The planning session whose confirmed plan the run works on; also that of the runs that it calls.
fn session(run: &Run) -> Option<PlanningSessionId> {
    run.context.scope.as_ref()?;
    PlanningSessionId::parse(run.context.bound.as_ref()?.get("id")?)
}

/// `OWNER/REPO`, if the run may use only that one.
fn repository(run: &Run) -> Option<String> {
    let bound = run.context.bound.as_ref()?;
    Some(format!("{}/{}", bound.get("owner")?, bound.get("repo")?))
}

/// Repeats a call whose outcome is unknown, where that is harmless, at most three times. Only the tool's data proves the outcome. A second
/// attempt that was not sent proves nothing. Neither does a tool's error: a second delete finds nothing because the
/// first one worked, and a server without its database cannot look up our key.
async fn retry_call(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    tool: &Arc<Tool>,
    left: Duration,
    first: CallFailure,
) -> Result<Arc<RawValue>, CallFailure> {
    let asked = engine.clock.instant();
    let left_now = || left.saturating_sub(engine.clock.instant().saturating_duration_since(asked));
    let mut pauses = PAUSES.iter();
    while tool.repeatable()
        && left_now() > WORTH_A_SECOND
        && !run.context.cancel.is_cancelled()
        && tokio::time::timeout(left_now(), still_allowed(engine, run, one))
            .await
            .unwrap_or(false)
        && left_now() > WORTH_A_SECOND
    {
        tracing::info!(decision_id = %run.record.decision.id, tool = %tool.name, "no answer to a repeatable call; sent again");
        match attempt(engine, run, one, tool, left_now(), Nth::Further).await {
            CallReply::Data(data) => return Ok(data),
            CallReply::Failed(failure) if !tool.side_effect => return Err(failure),
            CallReply::Failed(_) => break,
            // What is still not known is asked again. Without a log a person waits for the answer.
            CallReply::NotSent(_) | CallReply::Unknown(_) if run.record.log().is_none() => break,
            CallReply::NotSent(_) | CallReply::Unknown(_) => {}
        }
        match pauses.next() {
            Some(pause) if left_now() > *pause + WORTH_A_SECOND => tokio::time::sleep(*pause).await,
            _ => break,
        }
    }
    Err(if tool.side_effect { in_doubt(&first) } else { first })
}

/// May a started call be sent again? Since then the grant may have been revoked, the run cancelled (by another process
/// too), or the policy changed.
async fn still_allowed(engine: &Engine, run: &Run, one: &Cleared<'_>) -> bool {
    if let Some(log) = run.record.log()
        && !log.cleans_up
        && !matches!(log.runs.is_cancelled(log.run).await, Ok(false))
    {
        return false;
    }
    let ledger = run.record.journal.ledger();
    let Some(call) = ledger.call(one.call.id) else {
        return false;
    };
    let grants = match call.grant() {
        Some(_) => approvals::grants(run, std::slice::from_ref(one.call)).await,
        None => Vec::new(),
    };
    let facts = Facts {
        offered: match call.is_by_user() {
            true => offered(engine, &one.callee).await,
            false => Offered::Later,
        },
        ..facts(engine, run, std::slice::from_ref(one.call), grants)
    };
    let attempt = call.first_started_us().map_or(Attempt::First, Attempt::Again);
    let decision = decide(engine, one.call, &facts, call.resolution(), attempt).await;
    matches!(decision.outcome, PolicyDecision::Allow { .. })
}

fn in_doubt(failure: &CallFailure) -> CallFailure {
    let message = format!(
        "the outcome of this call is unknown ({}); do not repeat it, tell the user",
        failure.message
    );
    CallFailure {
        words_of: failure.words_of,
        ..CallFailure::new(FailureCode::InDoubt, message)
    }
}

// Calls that were started by a process that has died.

/// Recovers calls that were started by a process that has died. An agent's run continues from its journal. A tool is
/// called again under the same key where that is harmless. The outcome of every other call is unknown (promise: at most
/// once).
pub(crate) async fn recover(engine: &Engine, run: &mut Run, calls: &[Proposed]) -> Result<(), Stop> {
    for call in calls {
        if !run.record.is_ours() {
            return Err(Stop::LeaseLost);
        }
        let ledger = run.record.journal.ledger();
        let state = ledger.call(call.id);
        let first_started_us = state.and_then(Call::first_started_us);
        let allowed = state.and_then(Call::allowed).map(Arc::clone);
        let result = match (&call.target, allowed) {
            (Target::Agent(_), Some(arguments)) => {
                let one = cleared(call, Callee::Agent, arguments);
                let children = run.context.children.as_ref().ok_or(Stop::LeaseLost)?;
                let (child, again) = children.continuing(run, call).await?;
                if again {
                    started(engine, run, &one, Some(child));
                    write::flush(engine, run, Vec::new()).await?;
                }
                called(run, call, &one.arguments).await?
            }
            (Target::Tool(tool), Some(arguments)) if tool.repeatable() => {
                if is_too_late(engine, first_started_us, tool) {
                    cut_off(tool.side_effect)
                } else {
                    let one = cleared(call, Callee::Tool(tool), arguments);
                    let lost = CallFailure::new(FailureCode::Unavailable, CUT_OFF);
                    traced(engine, run, &one, tool, Some(lost)).await
                }
            }
            (Target::Tool(tool), _) => cut_off(tool.side_effect),
            (Target::Unresolved(tool), _) => cut_off(tool.side_effect),
            _ => cut_off(false),
        };
        run.push(Entry::Result { call: call.id, result });
    }
    write::flush(engine, run, Vec::new()).await
}

/// How long after its start a call may be sent again. Later, the tool may have forgotten its key, so the call would be
/// a second effect; and the approval was given for that time.
const SENT_AGAIN_FOR: Duration = Duration::from_secs(24 * 3600);

/// Is it too late to repeat a call that has side effects?
fn is_too_late(engine: &Engine, first_started_us: Option<i64>, tool: &Tool) -> bool {
    let ago_us = first_started_us.map_or(0, |at_us| engine.clock.now_us().saturating_sub(at_us));
    tool.side_effect && i128::from(ago_us) > SENT_AGAIN_FOR.as_micros() as i128
}

const CUT_OFF: &str = "the process that ran it ended during this call, or lost the database";

/// The result of a call whose process died and that must not be repeated.
fn cut_off(side_effect: bool) -> CallResult {
    let failure = match side_effect {
        true => CallFailure::new(FailureCode::InDoubt, format!("{CUT_OFF}; its outcome is unknown")),
        false => CallFailure::new(
            FailureCode::Unavailable,
            format!("{CUT_OFF}, and it cannot be repeated"),
        ),
    };
    CallResult::sent(Err(failure), Duration::ZERO)
}
