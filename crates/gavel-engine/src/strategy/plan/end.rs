//! How a session ends with the run that works through its plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CLEANUP_STEP, CLEANUP_TOOL, CONTAINER_TOOL, Execution, Progress, Scope};
use crate::api::planning::Cleanup;
use crate::domain::agent_run::StopReason;
use crate::domain::journal::{Entry, FaultKind};
use crate::domain::plan::{Task, TaskReason};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::domain::tool::FailureCode;
use crate::journal::Journal;
use crate::ledger::Call;
use crate::limits::Stop;
use crate::next::Ending;
use crate::ports::commit::{SessionEnd, Worked};
use crate::run::{Engine, Run};
use crate::toolset::Toolset;
use crate::{act, record};

impl Execution {
    /// What the end of the run leads to. `message`: the run's own error, if it has one.
    pub fn ended(&self, journal: &Journal, ending: &Ending, message: Option<&str>) -> Worked {
        let mut progress = Progress::of(journal, self);
        let (status, reason) = match ending {
            Ending::Flow(_) => (SessionStatus::Completed, None),
            Ending::Stopped(StopReason::Deadline, _) => (
                SessionStatus::DeadlineExceeded,
                Some((
                    SessionReason::Deadline,
                    "The deadline passed before every task was done.".into(),
                )),
            ),
            Ending::Cancelled => (
                SessionStatus::Cancelled,
                Some((SessionReason::Cancelled, "The run of the session was cancelled.".into())),
            ),
            other => {
                let detail: Arc<str> = message.unwrap_or("the run failed").into();
                (SessionStatus::Failed, Some((self.reason(other, &progress), detail)))
            }
        };
        progress.plan.end_with(status);
        Worked {
            plan: progress.plan,
            changed: None,
            ended: Some(SessionEnd {
                status,
                reason,
                cleanup: cleanup(journal).or_else(|| self.unknown(journal)),
            }),
        }
    }

    /// What is left if nothing was cleaned up, although a task may have made a container.
    fn unknown(&self, journal: &Journal) -> Option<Cleanup> {
        let creates = |task: &Task| task.run_id.is_some() && task.tools.iter().any(|tool| tool == CONTAINER_TOOL);
        let plan = Progress::of(journal, self).plan;
        plan.tasks
            .iter()
            .any(creates)
            .then(|| Cleanup::unknown("it was not done"))
    }

    /// Why a session fails. A task that failed for a reason of the session's own has it too.
    fn reason(&self, ending: &Ending, progress: &Progress) -> SessionReason {
        let of_task = progress
            .plan
            .failed()
            .and_then(|task| task.status_reason.as_ref())
            .map(|reason| reason.code);
        match (ending, of_task) {
            (Ending::StepFailed(_), Some(TaskReason::ModelUnavailable)) => SessionReason::ModelUnavailable,
            (Ending::StepFailed(_), Some(TaskReason::ModelBlocked)) => SessionReason::ModelBlocked,
            (Ending::StepFailed(_), Some(TaskReason::ToolsUnavailable)) => SessionReason::ToolsUnavailable,
            (Ending::StepFailed(_), Some(TaskReason::TokenLimit)) => SessionReason::TokenLimit,
            // The task had the last steps of the session, and not of its own limit alone.
            (Ending::StepFailed(_), Some(TaskReason::StepLimit)) if progress.steps >= self.rules.limits.max_steps => {
                SessionReason::StepLimit
            }
            (Ending::StepFailed(_), Some(TaskReason::Internal)) => SessionReason::Internal,
            (Ending::StepFailed(_), _) => SessionReason::TaskFailed,
            (Ending::Stopped(StopReason::StepLimit, _) | Ending::LoopLimit, _) => SessionReason::StepLimit,
            (Ending::Stopped(StopReason::TokenLimit, _), _) => SessionReason::TokenLimit,
            (Ending::Unable(_) | Ending::Waiting(_), _) => SessionReason::ToolsUnavailable,
            (Ending::Fault(FaultKind::Blocked), _) => SessionReason::ModelBlocked,
            _ => SessionReason::Internal,
        }
    }
}

/// What the cleanup did; `None` if there was none.
fn cleanup(journal: &Journal) -> Option<Cleanup> {
    let ledger = journal.ledger();
    let call = ledger.calls().rev().find(is_cleanup)?;
    Some(match call.result().map(|result| &result.outcome) {
        Some(Ok(data)) => {
            let data: Value = serde_json::from_str(data.get()).unwrap_or_default();
            let names = |field: &str| {
                let names = data.get(field).and_then(Value::as_array).into_iter().flatten();
                names.map(name).collect()
            };
            Cleanup {
                removed: names("removed"),
                left: names("left"),
            }
        }
        Some(Err(failure)) => Cleanup::unknown(&failure.for_callers()),
        None => Cleanup::unknown("it was not done"),
    })
}

fn name(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Is it the cleanup at the end?
pub(super) fn is_cleanup(call: &Call<'_>) -> bool {
    call.step.is_some_and(|(step, _)| step == CLEANUP_STEP)
}

// The cleanup at the end of every session, whatever ended it: a call of code, decided and recorded like any other, up
// to 30 s beyond the deadline.

/// How long the cleanup may take.
const CLEANUP_TIME: Duration = Duration::from_secs(30);
/// How long its server is waited for, if the process has just started.
const SERVER_WAIT: Duration = Duration::from_secs(5);

/// Removes what the tasks of a session left behind, unless that was done since the run began or was resumed. If they may
/// have left containers and there is no tool that removes them, that is recorded in its place.
pub(crate) async fn clean_up(engine: &Engine, run: &mut Run, execution: &Execution) -> Result<(), Stop> {
    let ledger = run.record.journal.ledger();
    let resumed = run.record.journal.len() - record::current(&run.record.journal).len();
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
    let (target, arguments) = (
        toolset.target(CLEANUP_TOOL),
        json!({"group": execution.session.to_string()}),
    );
    let journal = &run.record.journal;
    let step = journal.step((CLEANUP_STEP, 1), target, CLEANUP_TOOL.to_owned(), &arguments);
    let calls = step.calls().to_vec();
    run.push(step);
    if let Some(missing) = toolset.missing.first() {
        tracing::warn!(session = %execution.session, missing.reason, "the containers of a session cannot be removed");
        let message =
            "no connected server offers the tool that removes containers, which end by themselves when they expire";
        for call in &calls {
            run.push(Entry::failed(call.id, FailureCode::Unavailable, message));
        }
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
    act::act(engine, run, &calls).await?;
    let open = run
        .record
        .journal
        .ledger()
        .calls()
        .filter(|call| is_cleanup(call) && call.is_open());
    for call in open.map(Call::id).collect::<Vec<_>>() {
        let message = "it requires an approval, and nothing waits at the end of a session";
        run.push(Entry::failed(call, FailureCode::Denied, message));
    }
    Ok(())
}
