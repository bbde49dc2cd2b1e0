//! How far the work on a plan has come, read from the journal.

use crate::journal::Journal;
use std::collections::BTreeSet;

use super::{Execution, MOST_CHANGES, TaskOutcome, TaskWork, is_task};
use crate::domain::ids::ActionId;
use crate::domain::journal::Entry;
use crate::domain::plan::{Plan, TaskId, TaskReason, TaskStatus};
use crate::domain::time::Timestamp;
use crate::ledger::Call;

/// How far the work on a plan has come.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The plan as it stands.
    pub plan: Plan,
    /// The steps of all tasks that have ended.
    pub steps: u32,
    /// The changes of the plan.
    pub changes: u32,
    /// Calls in doubt that no person has settled.
    pub in_doubt: BTreeSet<ActionId>,
    /// What the tasks that have ended created.
    pub created: BTreeSet<String>,
    /// What the tasks that have ended say, in their order.
    pub reports: Vec<Report>,
}

/// What a task that has ended says.
#[derive(Clone, Debug)]
pub struct Report {
    /// The task.
    pub task: TaskId,
    /// What it has shown.
    pub summary: String,
    /// What later tasks should know.
    pub learnings: Vec<String>,
}

impl Progress {
    /// Reads it from the journal of the run that works through the plan.
    #[must_use]
    pub fn of(journal: &Journal, execution: &Execution) -> Self {
        let mut progress = Self {
            plan: execution.plan.clone(),
            steps: 0,
            changes: 0,
            in_doubt: BTreeSet::new(),
            created: BTreeSet::new(),
            reports: Vec::new(),
        };
        let ledger = journal.ledger();
        for call in ledger.calls().filter(|call| is_task(&call.proposed.target)) {
            if let Some((number, _)) = call.step {
                progress.take(TaskId::of(number), call);
            }
        }
        for entry in journal {
            if let Entry::OutcomeSettled { call, .. } = entry {
                progress.in_doubt.remove(call);
            }
        }
        progress
    }

    fn take(&mut self, id: TaskId, call: Call<'_>) {
        match call.result().map(|result| (&result.outcome, result.duration_us)) {
            None => {}
            Some((Ok(data), _)) => match TaskOutcome::read(data) {
                Ok(outcome) => self.end(id, outcome),
                Err(error) => self.fail(id, &format!("its outcome cannot be read: {error}")),
            },
            Some((Err(failure), _)) => self.fail(id, &failure.message),
        }
        let Some(task) = self.plan.task_mut(id) else { return };
        let Some(started_us) = call.first_started_us() else {
            return;
        };
        task.run_id = call.child();
        task.started_at = Some(Timestamp(started_us));
        match call.result() {
            None => task.status = TaskStatus::InProgress,
            Some(result) => task.completed_at = Some(Timestamp(started_us.saturating_add(result.duration_us))),
        }
    }

    fn end(&mut self, id: TaskId, outcome: TaskOutcome) {
        self.plan = outcome.plan;
        self.steps = self.steps.saturating_add(outcome.steps);
        self.changes = self.changes.saturating_add(outcome.changes);
        self.in_doubt.extend(outcome.in_doubt);
        self.created.extend(outcome.created);
        if let Some(task) = self.plan.task_mut(id) {
            task.steps = outcome.steps;
            match outcome.reason {
                None => task.status = outcome.status,
                Some(reason) => task.fail(reason, &outcome.detail),
            }
        }
        self.reports.push(Report {
            task: id,
            summary: outcome.summary,
            learnings: outcome.learnings,
        });
    }

    /// Its run ended without an outcome.
    fn fail(&mut self, id: TaskId, detail: &str) {
        if let Some(task) = self.plan.task_mut(id) {
            task.fail(TaskReason::Internal, detail);
        }
    }

    /// What is known at the end, in a text.
    #[must_use]
    pub fn summary(&self) -> String {
        let lines: Vec<_> = self
            .reports
            .iter()
            .filter(|report| !report.summary.is_empty())
            .map(|report| format!("{}: {}", report.task, report.summary))
            .collect();
        match lines.is_empty() {
            true => "Every task of the plan is done.".to_owned(),
            false => lines.join("\n"),
        }
    }

    /// What the run of the task `id`, which is in progress, is given. `spent`: the tokens of the tasks before it.
    #[must_use]
    pub fn work(&self, id: TaskId, execution: &Execution, spent: u64) -> TaskWork {
        let mut rules = execution.rules.clone();
        let limits = &mut rules.limits;
        limits.max_steps = limits.max_steps.saturating_sub(self.steps);
        limits.max_tokens = limits.max_tokens.map(|most| most.saturating_sub(spent));
        TaskWork {
            session: execution.session,
            task: id,
            plan: self.plan.clone(),
            tools: execution.tools.clone(),
            rules,
            changes: MOST_CHANGES.saturating_sub(self.changes),
        }
    }
}
