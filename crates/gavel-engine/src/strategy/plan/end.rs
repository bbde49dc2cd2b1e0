//! How a session ends with the run that works through its plan.

use crate::journal::Journal;
use std::sync::Arc;

use serde_json::Value;

use super::{CLEANUP_STEP, CONTAINER_TOOL, Execution, Progress};
use crate::api::planning::Cleanup;
use crate::domain::agent_run::StopReason;
use crate::domain::journal::FaultKind;
use crate::domain::plan::{Task, TaskReason};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::ledger::Call;
use crate::next::Ending;
use crate::ports::commit::{SessionEnd, Worked};

impl Execution {
    /// What the end of the run leads to. `message`: the run's own error, if it has one.
    #[must_use]
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
