//! Calls that were started by a process that has died.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::super::ledger::Call;
use super::super::run::{Engine, Run};
use super::super::stop::Stop;
use super::super::{spans, write};
use super::send::retry_call;
use super::{Callee, Cleared, called, cleared, started};
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Target};
use crate::domain::tool::{FailureCode, Tool};

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
                let (child, again) = children.continuing(&run.record, call).await?;
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
                    called_again(engine, run, &one, tool).await
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

/// Repeats a call whose process died, under the same key. As after an attempt without an answer, only the tool's data
/// proves the outcome.
async fn called_again(engine: &Engine, run: &Run, one: &Cleared<'_>, tool: &Arc<Tool>) -> CallResult {
    let began = engine.clock.instant();
    let time = run.context.limits.tool_time(tool.timeout, run.record.elapsed(began));
    let first = CallFailure::new(FailureCode::Unavailable, CUT_OFF.to_owned());
    let span = spans::tool_call(tool, one.call.id);
    let outcome = retry_call(engine, run, one, tool, time, first)
        .instrument(span.clone())
        .await;
    let took = engine.clock.instant().saturating_duration_since(began);
    let result = CallResult {
        outcome,
        sent: true,
        duration_us: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
    };
    spans::called(&span, &result);
    result
}

/// The result of a call whose process died and that must not be repeated.
fn cut_off(side_effect: bool) -> CallResult {
    let (code, message) = if side_effect {
        (FailureCode::InDoubt, format!("{CUT_OFF}; its outcome is unknown"))
    } else {
        (
            FailureCode::Unavailable,
            format!("{CUT_OFF}, and it cannot be repeated"),
        )
    };
    CallResult {
        outcome: Err(CallFailure::new(code, message)),
        sent: true,
        duration_us: 0,
    }
}
