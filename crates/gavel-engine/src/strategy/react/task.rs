//! A task as its journal has it: its steps, its reflections, and the plan that they leave.

use std::collections::BTreeSet;

use crate::domain::agent_run::StopReason;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, FaultKind, Phase, Proposed, Target, Verdict};
use crate::domain::plan::{Plan, TaskReason, TaskStatus, difference};
use crate::domain::reflection::Reflection;
use crate::domain::text;
use crate::domain::tool::FailureCode;
use crate::journal::Journal;
use crate::ledger::{Call, Ledger};
use crate::next::Ending;
use crate::ports::commit::{PlanChanged, Worked};
use crate::strategy::plan::{TaskOutcome, TaskWork, created};
use crate::strategy::react;

/// Why a reflection was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Its form is invalid, or its changes of the plan cannot be made.
    Invalid,
    /// It calls the task complete, and no result shows that.
    Unproven,
}

impl Answer {
    /// The code under which the journal has it.
    fn code(self) -> FailureCode {
        match self {
            Self::Invalid => FailureCode::InvalidArguments,
            Self::Unproven => FailureCode::Denied,
        }
    }
}

/// What the reflections of a task come to.
pub(super) struct TaskState {
    /// Its steps, the one at work included.
    pub(super) steps: u32,
    /// The plan as it stands.
    plan: Plan,
    /// The changes of it.
    changes: u32,
    /// The last accepted reflection, with the plan before it.
    last: Option<(Plan, Reflection)>,
    /// The reflections that were not accepted, since the last one that was.
    pub(super) refused: Vec<(Answer, String)>,
    /// What accepted reflections say for later tasks.
    learnings: Vec<String>,
    work: TaskWork,
}

impl TaskState {
    pub(super) fn of(journal: &Journal, work: &TaskWork) -> Self {
        let mut state = Self {
            steps: 0,
            plan: work.plan.clone(),
            changes: 0,
            last: None,
            refused: Vec::new(),
            learnings: Vec::new(),
            work: work.clone(),
        };
        let ledger = journal.ledger();
        for entry in journal {
            state.steps += u32::from(entry.begins_step());
            for call in entry.calls() {
                let Target::Verdict(read) = &call.target else { continue };
                let Some(result) = ledger.call(call.id).and_then(|call| call.result()) else {
                    continue;
                };
                match (&result.outcome, read) {
                    (Ok(_), Ok(Verdict::Reflect(reflection))) => state.accept(reflection),
                    (Ok(_), _) => {}
                    (Err(failure), _) if failure.code == Answer::Unproven.code() => {
                        state.refused.push((Answer::Unproven, failure.message.clone()));
                    }
                    (Err(failure), _) if failure.code == Answer::Invalid.code() => {
                        state.refused.push((Answer::Invalid, failure.message.clone()));
                    }
                    // One of several calls of a turn.
                    (Err(_), _) => {}
                }
            }
        }
        state
    }

    fn accept(&mut self, reflection: &Reflection) {
        let before = self.plan.clone();
        if let Ok(plan) = self.changed(reflection) {
            self.plan = plan;
        }
        self.changes = self.changes.saturating_add(count(reflection));
        self.refused.clear();
        self.learnings.extend(reflection.learnings.iter().cloned());
        self.last = Some((before, reflection.clone()));
    }

    fn changed(&self, reflection: &Reflection) -> Result<Plan, Vec<String>> {
        let TaskWork {
            session, task, tools, ..
        } = &self.work;
        let changed = self.plan.changed(*session, *task, &reflection.plan_changes, tools);
        changed.map_err(|errors| {
            let errors = errors.iter().map(|error| format!("{} {}", error.pointer, error.detail));
            errors.collect()
        })
    }

    /// The answer to a reflection.
    pub(super) fn answer(&self, ledger: &Ledger<'_>, call: &Proposed) -> Result<(), (FailureCode, String)> {
        let invalid = |errors: Vec<String>| (Answer::Invalid.code(), errors.join("; "));
        let reflection = match &call.target {
            Target::Verdict(Ok(Verdict::Reflect(reflection))) => reflection,
            Target::Verdict(Err(error)) => return Err(invalid(vec![error.clone()])),
            _ => return Err(invalid(vec!["is no reflection".to_owned()])),
        };
        let mut errors = reflection.errors();
        errors.extend(self.changed(reflection).err().into_iter().flatten());
        if self.changes.saturating_add(count(reflection)) > self.work.changes {
            let left = self.work.changes.saturating_sub(self.changes);
            errors.push(format!(
                "/plan_changes: {left} further changes of the plan are allowed in this session"
            ));
        }
        if !errors.is_empty() {
            return Err(invalid(errors));
        }
        if reflection.is_task_complete {
            react::shown(ledger, reflection).map_err(|why| (Answer::Unproven.code(), why))?;
        }
        Ok(())
    }
}

fn count(reflection: &Reflection) -> u32 {
    u32::try_from(reflection.plan_changes.len()).unwrap_or(u32::MAX)
}

/// What the entries from `written` on change in the session: a step was reflected on, perhaps with changes of the plan.
pub(crate) fn worked(journal: &Journal, written: usize, work: &TaskWork) -> Option<Worked> {
    let ledger = journal.ledger();
    let is_verdict = |call| {
        ledger
            .call(call)
            .is_some_and(|call| matches!(call.proposed.target, Target::Verdict(_)))
    };
    let mut results = journal.iter().skip(written).filter_map(Entry::result);
    if !results.any(|(call, result)| result.outcome.is_ok() && is_verdict(call)) {
        return None;
    }
    let state = TaskState::of(journal, work);
    let changed = state.last.filter(|(_, reflection)| !reflection.plan_changes.is_empty());
    let mut plan = state.plan;
    if let Some(task) = plan.task_mut(work.task) {
        task.steps = state.steps;
    }
    Some(Worked {
        changed: changed.map(|(before, reflection)| PlanChanged {
            why: reasons(&reflection).into(),
            changes: difference(Some(&before), &plan),
        }),
        plan,
        ended: None,
    })
}

/// Why a reflection changes the plan: the reasons of its changes, each once.
fn reasons(reflection: &Reflection) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for change in &reflection.plan_changes {
        if !reasons.contains(&change.why()) {
            reasons.push(change.why());
        }
    }
    reasons.join("; ")
}

/// What a task has come to. `detail`: the run's own error, if it has one. `in_doubt`: its calls in doubt.
pub fn outcome(
    journal: &Journal,
    work: &TaskWork,
    ending: &Ending,
    detail: Option<&str>,
    in_doubt: BTreeSet<ActionId>,
) -> TaskOutcome {
    let state = TaskState::of(journal, work);
    let (reason, detail) = match ending {
        Ending::Verdict(Verdict::Complete { .. }) => (None, String::new()),
        Ending::Task(reason, detail) => (Some(*reason), detail.clone()),
        other => (
            Some(reason(other)),
            detail.unwrap_or("the run of the task failed").to_owned(),
        ),
    };
    let taken = |step: &super::StepState<'_>| step.action.is_some();
    TaskOutcome {
        status: match reason {
            None => TaskStatus::Completed,
            Some(_) => TaskStatus::Failed,
        },
        reason,
        detail,
        summary: state.last.map(|(_, reflection)| reflection.summary).unwrap_or_default(),
        learnings: state.learnings,
        steps: u32::try_from(steps(journal).iter().filter(|step| taken(step)).count()).unwrap_or(u32::MAX),
        plan: state.plan,
        changes: state.changes,
        in_doubt,
        created: created(journal),
    }
}

fn reason(ending: &Ending) -> TaskReason {
    match ending {
        Ending::DoomLoop(_) => TaskReason::DoomLoop,
        Ending::Fault(FaultKind::Blocked) => TaskReason::ModelBlocked,
        Ending::Fault(_) => TaskReason::ModelUnavailable,
        Ending::Stopped(StopReason::Deadline, _) => TaskReason::Deadline,
        Ending::Stopped(StopReason::TokenLimit, _) => TaskReason::TokenLimit,
        Ending::Stopped(StopReason::StepLimit, _) | Ending::LoopLimit => TaskReason::StepLimit,
        Ending::Unable(_) | Ending::Waiting(_) => TaskReason::ToolsUnavailable,
        Ending::Cancelled => TaskReason::Cancelled,
        _ => TaskReason::Internal,
    }
}

// The steps of a task, read from its journal: what was thought, done, seen and concluded (P-305).

/// The most bytes of a reason.
const REASON: usize = 4 * 1024;

/// One step of a task.
#[derive(Clone, Debug)]
pub struct StepState<'a> {
    /// 1, 2, 3 …
    pub n: u32,
    /// What the model meant to do, and why.
    pub reason: Option<String>,
    /// What it did.
    pub action: Option<Call<'a>>,
    /// What it concluded; the last reflection that was accepted.
    pub reflection: Option<&'a Reflection>,
}

/// The steps of a task's run, in order.
pub fn steps(journal: &Journal) -> Vec<StepState<'_>> {
    let ledger = journal.ledger();
    let mut steps: Vec<StepState<'_>> = Vec::new();
    let mut phase = None;
    for entry in journal {
        if entry.begins_step() {
            steps.push(StepState {
                n: u32::try_from(steps.len() + 1).unwrap_or(u32::MAX),
                reason: None,
                action: None,
                reflection: None,
            });
        }
        phase = entry.phase().map(|(phase, _)| phase).or(phase);
        let (Some((turn, calls)), Some(step)) = (entry.turn(), steps.last_mut()) else {
            continue;
        };
        match phase {
            Some(Phase::Reason) => {
                let words = turn.text();
                step.reason = Some(text::prefix(&words, REASON).to_owned());
            }
            Some(Phase::Act) => {
                let first = calls.first().filter(|call| !matches!(call.target, Target::Verdict(_)));
                let call = first.and_then(|call| ledger.call(call.id));
                step.action = step.action.or(call);
            }
            Some(Phase::Reflect) => {
                let accepted = calls.iter().find_map(|call| match &call.target {
                    Target::Verdict(Ok(Verdict::Reflect(reflection))) => {
                        ledger.call(call.id)?.succeeded().then_some(&**reflection)
                    }
                    _ => None,
                });
                step.reflection = accepted.or(step.reflection);
            }
            None => {}
        }
    }
    steps
}
