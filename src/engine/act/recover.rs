//! Calls that were begun by a process that is gone.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::super::log::{self, Stop};
use super::super::{Engine, Run, agent, spans};
use super::{Cleared, What, allowed, begun_at, child_begun, cleared, once_more, started};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Target};
use crate::domain::tool::{FailureCode, Tool};

/// Calls that were begun by a process that is gone: an agent's run is taken up where it stands, a tool is called again
/// under the same key where that can do no harm, and of every other call it is not known what it did (promise 3).
pub(in crate::engine) async fn recover(engine: &Engine, run: &mut Run, calls: &[Proposed]) -> Result<(), Stop> {
    for call in calls {
        if !run.is_ours() {
            return Err(Stop::LeaseLost);
        }
        let allowed = allowed(&run.journal, call.id);
        let result = match (&call.target, allowed) {
            (Target::Agent(_), Some(arguments)) => {
                let one = cleared(call, What::Agent, arguments);
                let (child, resumes) = agent::go_on_with(run, call).await?;
                if child_begun(&run.journal, call.id) != Some(child) {
                    started(engine, run, &one, Some(child));
                    log::flush(engine, run, Vec::new()).await?;
                }
                agent::call(engine, run, call, &one.arguments, resumes).await?
            }
            (Target::Tool(tool), Some(arguments)) if tool.repeatable() => {
                if is_too_late(engine, run, call.id, tool) {
                    cut_off(tool.side_effect)
                } else {
                    let one = cleared(call, What::Tool(tool), arguments);
                    called_again(engine, run, &one, tool).await
                }
            }
            (Target::Tool(tool), _) => cut_off(tool.side_effect),
            (Target::Gone(tool), _) => cut_off(tool.side_effect),
            _ => cut_off(false),
        };
        run.push(Entry::Result { call: call.id, result });
    }
    log::flush(engine, run, Vec::new()).await
}

/// So long after it was begun a call is sent again. Later a tool may have forgotten its key, so that it would be a second effect; and who
/// gave leave for it did so for then.
const SENT_AGAIN_FOR: Duration = Duration::from_secs(24 * 3600);

/// Is it too late to send a call again that can change something?
fn is_too_late(engine: &Engine, run: &Run, id: ActionId, tool: &Tool) -> bool {
    let ago_us = begun_at(&run.journal, id).map_or(0, |at_us| engine.clock.now_us().saturating_sub(at_us));
    tool.side_effect && i128::from(ago_us) > SENT_AGAIN_FOR.as_micros() as i128
}

const CUT_OFF: &str = "the process that ran it ended during this call, or lost the database";

/// A call whose process died, once more under the same key. It is as after an attempt that nobody answered: only the
/// tool's data tells what became of it.
async fn called_again(engine: &Engine, run: &Run, one: &Cleared<'_>, tool: &Arc<Tool>) -> CallResult {
    let began = engine.clock.instant();
    let time = run.limits.tool_time(tool.timeout, run.elapsed(began));
    let first = CallFailure::new(FailureCode::Unavailable, CUT_OFF.to_owned());
    let span = spans::tool_call(tool, one.call.id);
    let outcome = once_more(engine, run, one, tool, time, first)
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

/// The result of a call whose process died and that cannot be repeated.
fn cut_off(side_effect: bool) -> CallResult {
    let (code, message) = if side_effect {
        (
            FailureCode::InDoubt,
            format!("{CUT_OFF}; it is not known whether it had its effect"),
        )
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
