//! The events of results: of tools, of reflections, of tasks.

use std::sync::Arc;

use super::{Projected, Projection};
use crate::api::planning::SessionEvent;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::CallResult;
use crate::domain::plan::{TaskId, TaskReason, TaskStatus};
use crate::domain::reflection::Reflection;
use crate::domain::tool::FailureCode;
use crate::engine::strategy::plan::TaskOutcome;

impl Projection {
    pub(super) fn result(&mut self, run: RunId, id: ActionId, result: &CallResult) -> Vec<Projected> {
        if let Some(task) = self.tasks.get(&id).copied() {
            return vec![Projected::Event(self.task_ended(task, result))];
        }
        if let Some(reflection) = self.reflections.remove(&id) {
            return self.reflected(run, reflection, result);
        }
        let Some(call) = self.calls.get(&id) else {
            return Vec::new();
        };
        let (data, error) = match &result.outcome {
            Ok(data) => (Some(Arc::clone(data)), None),
            Err(error) => (None, Some(crate::surfaces::planning::log::error(error))),
        };
        let event = SessionEvent::ToolResult {
            task_id: call.task,
            step: call.step,
            action_id: id,
            tool: Arc::clone(&call.tool),
            success: error.is_none(),
            data,
            error,
            duration_ms: u64::try_from(result.duration_us / 1000).unwrap_or(0),
        };
        self.approvals.remove(&id);
        self.in_doubt.retain(|known| *known != id);
        if matches!(&result.outcome, Err(failure) if failure.code == FailureCode::InDoubt) {
            self.in_doubt.push(id);
        } else {
            self.calls.remove(&id);
        }
        vec![Projected::Event(event)]
    }

    /// What the model concluded, once it is known whether that is accepted.
    fn reflected(&mut self, run: RunId, reflection: Result<Reflection, String>, result: &CallResult) -> Vec<Projected> {
        let Some(progress) = self.progress.get(&run) else {
            return Vec::new();
        };
        let error = result.outcome.as_ref().err();
        let error = error.map(|failure| failure.for_callers().into_owned());
        let said = reflection.unwrap_or_else(|_| Reflection {
            is_task_complete: false,
            summary: String::new(),
            evidence: Vec::new(),
            learnings: Vec::new(),
            plan_changes: Vec::new(),
            give_up: None,
        });
        let accepted = error.is_none();
        let is_changed = accepted && !said.plan_changes.is_empty();
        let event = SessionEvent::Reflection {
            task_id: progress.task,
            step: progress.step,
            accepted,
            error,
            is_task_complete: said.is_task_complete,
            summary: said.summary,
            evidence: said
                .evidence
                .into_iter()
                .map(crate::surfaces::planning::task::quoted)
                .collect(),
            learnings: said.learnings,
            plan_changes: said.plan_changes,
            give_up: said.give_up,
        };
        let changed = is_changed.then_some(Projected::PlanChanged);
        [Projected::Event(event)].into_iter().chain(changed).collect()
    }

    fn task_ended(&mut self, task_id: TaskId, result: &CallResult) -> SessionEvent {
        let outcome = match &result.outcome {
            Ok(data) => TaskOutcome::read(data).map_err(|_| (TaskReason::Internal, String::new())),
            Err(failure) => Err((reason(failure.code), failure.for_callers().into_owned())),
        };
        match outcome {
            Ok(outcome) => {
                self.plan = outcome.plan.tasks;
                SessionEvent::TaskEnded {
                    task_id,
                    status: outcome.status,
                    reason: outcome.reason,
                    detail: outcome.detail,
                    summary: outcome.summary,
                    steps: outcome.steps,
                }
            }
            Err((reason, detail)) => {
                let of_task = self.progress.values().find(|progress| progress.task == task_id);
                SessionEvent::TaskEnded {
                    task_id,
                    status: TaskStatus::Failed,
                    reason: Some(reason),
                    detail,
                    summary: String::new(),
                    steps: of_task.map_or(0, |progress| progress.step),
                }
            }
        }
    }
}

/// Why the run of a task failed that did not say so itself.
const fn reason(code: FailureCode) -> TaskReason {
    match code {
        FailureCode::Cancelled => TaskReason::Cancelled,
        _ => TaskReason::Internal,
    }
}
