//! The cleanup at the end of every session, whatever ended it: a call of code, decided and recorded like any other, up
//! to 30 s beyond the deadline.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::end::is_cleanup;
use super::{CLEANUP_STEP, CLEANUP_TOOL, CONTAINER_TOOL, Execution, Progress, Scope};
use crate::act;
use crate::attempt;
use crate::domain::canonical;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, FunctionCall, Proposed, Target};
use crate::domain::plan::Task;
use crate::domain::tool::FailureCode;
use crate::ledger::Call;
use crate::run::{Engine, Run};
use crate::stop::Stop;
use crate::toolset::Toolset;

/// How long the cleanup may take.
const CLEANUP_TIME: Duration = Duration::from_secs(30);
/// How long its server is waited for, if the process has just started.
const SERVER_WAIT: Duration = Duration::from_secs(5);

/// Removes what the tasks of a session left behind, unless that was done since the run began or was resumed. If they may
/// have left containers and there is no tool that removes them, that is recorded in its place.
pub(crate) async fn clean_up(engine: &Engine, run: &mut Run, execution: &Execution) -> Result<(), Stop> {
    let ledger = run.record.journal.ledger();
    let resumed = run.record.journal.len() - attempt::current(&run.record.journal).len();
    let before = ledger.calls().rev().find(is_cleanup);
    let has_begun = ledger.calls().any(Call::was_started);
    let cut = match before {
        Some(call) if call.is_open() => Some(call.id()),
        Some(call) if call.has_result_from(resumed) => return Ok(()),
        _ if !has_begun => return Ok(()),
        _ => None,
    };
    if let Some(call) = cut {
        // It is harmless to do it again.
        let message = "the process that made this call ended; it is made again";
        run.push(Entry::failed(call, FailureCode::Unavailable, message));
    }
    let names = [CLEANUP_TOOL.to_owned()];
    engine.tools.ready(&names, engine.clock.instant() + SERVER_WAIT).await;
    let toolset = Toolset::build(&engine.tools.catalog(), &names, &[]);
    let tool = toolset.tool(CLEANUP_TOOL);
    let creates = |task: &Task| task.tools.iter().any(|tool| tool == CONTAINER_TOOL);
    if tool.is_none()
        && !Progress::of(&run.record.journal, execution)
            .plan
            .tasks
            .iter()
            .any(creates)
    {
        return Ok(());
    }
    let call = Proposed {
        id: ActionId::new(),
        sequence: attempt::proposed(&run.record.journal) + 1,
        target: tool.map_or(Target::Unknown, |tool| Target::Tool(Arc::clone(tool))),
        call: FunctionCall {
            id: None,
            name: CLEANUP_TOOL.to_owned(),
            args: canonical::to_raw(&json!({"group": execution.session.to_string()})),
        },
    };
    run.push(Entry::Step {
        step: CLEANUP_STEP,
        round: 1,
        call: call.clone(),
    });
    if let Some(missing) = toolset.missing.first() {
        tracing::warn!(session = %execution.session, missing.reason, "the containers of a session cannot be removed");
        let message =
            "no connected server offers the tool that removes containers, which end by themselves when they expire";
        run.push(Entry::failed(call.id, FailureCode::Unavailable, message));
        return Ok(());
    }
    // What ended the tasks does not end the cleanup, and the person who confirmed the plan need not allow it.
    if let Some(log) = run.record.log_mut() {
        log.cleans_up = true;
    }
    let elapsed = run.record.elapsed(engine.clock.instant());
    let context = &mut run.context;
    context.cancel = CancellationToken::new();
    context.limits.until = None;
    context.limits.time = Some(elapsed + CLEANUP_TIME);
    context.scope = Some(Arc::new(Scope {
        tools: BTreeSet::from(names),
        by_code: true,
        ..Scope::default()
    }));
    act::act(engine, run, std::slice::from_ref(&call)).await?;
    let is_open = run.record.journal.ledger().call(call.id).is_some_and(Call::is_open);
    if is_open {
        let message = "it requires an approval, and nothing waits at the end of a session";
        run.push(Entry::failed(call.id, FailureCode::Denied, message));
    }
    Ok(())
}
