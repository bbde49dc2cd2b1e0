//! Turns the log of a run of a session into events: a fold over its entries, the same at every process.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::api::events::Event;
use crate::api::planning::{ResumedBecause, SessionEvent, WaitingCall, WaitingKind};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallResult, Cause, Entry, ModelTurn, Phase, PolicyDecision, Proposed, Target, Verdict};
use crate::domain::plan::{Task, TaskId, TaskReason, TaskStatus};
use crate::domain::reflection::Reflection;
use crate::domain::tool::FailureCode;
use crate::engine::projection::tool_name;
use crate::engine::strategy::plan::{Execution, TaskOutcome};

/// What an entry becomes.
#[derive(Debug)]
pub(super) enum Projected {
    /// An event.
    Event(SessionEvent),
    /// Text as it arrives, which is not stored.
    Live(SessionEvent),
    /// A version of the plan, which the store has.
    PlanChanged,
}

/// What later entries of a run, and of the runs that it called, refer to.
pub(super) struct Projection {
    /// The outermost run.
    root: RunId,
    /// The most steps of a task.
    max_steps: u32,
    /// The tasks as they are known, for their titles.
    plan: Vec<Task>,
    /// The calls of the outermost run that work on tasks.
    tasks: HashMap<ActionId, TaskId>,
    /// Where the runs of tasks are.
    progress: HashMap<RunId, Progress>,
    calls: HashMap<ActionId, Call>,
    reflections: HashMap<ActionId, Result<Reflection, String>>,
    /// The approvals that are required, each with its run and the reason.
    approvals: BTreeMap<ActionId, (RunId, String)>,
    /// The calls in doubt, in the order of their results.
    in_doubt: Vec<ActionId>,
}

/// Where the run of a task is.
#[derive(Clone, Copy)]
struct Progress {
    task: TaskId,
    step: u32,
    phase: Option<Phase>,
}

/// A call that has no final result yet.
struct Call {
    task: Option<TaskId>,
    step: Option<u32>,
    tool: Arc<str>,
    arguments: Arc<RawValue>,
    is_sent: bool,
}

impl Projection {
    /// For an outermost run, from its first entry on.
    pub(super) fn new(root: RunId, execution: Option<&Execution>) -> Self {
        Self {
            root,
            max_steps: execution.map_or(0, |execution| execution.rules.limits.max_steps_per_task),
            plan: execution
                .map(|execution| execution.plan.tasks.clone())
                .unwrap_or_default(),
            tasks: HashMap::new(),
            progress: HashMap::new(),
            calls: HashMap::new(),
            reflections: HashMap::new(),
            approvals: BTreeMap::new(),
            in_doubt: Vec::new(),
        }
    }

    /// The events of the next entry, at most two.
    pub(super) fn events(&mut self, run: RunId, entry: &Entry) -> Vec<Projected> {
        if let Entry::Result { call, result } = entry {
            return self.result(run, *call, result);
        }
        let event = match entry {
            Entry::ModelTurn { turn, calls } => self.turn(run, turn, calls),
            Entry::ModelFault { kind, .. } => Some(SessionEvent::Reset {
                task_id: self.task(run),
                fault: Some(kind.as_str().into()),
            }),
            Entry::Step { step, call, .. } => {
                match &call.target {
                    Target::Agent(_) => {
                        self.tasks.insert(call.id, TaskId::of(*step));
                    }
                    _ => self.learn(run, call),
                }
                None
            }
            Entry::Prompted {
                cause: Cause::Phase { phase, again, .. },
                ..
            } => self.phase(run, *phase, *again),
            Entry::Decided { call, decision } => {
                self.decided(run, *call, decision);
                None
            }
            Entry::ApprovalResolved {
                call,
                approved,
                by,
                reason,
            } => {
                self.approvals.remove(call);
                let why = match (approved, by) {
                    (true, _) => ResumedBecause::Approved,
                    (false, Some(_)) => ResumedBecause::Rejected,
                    (false, None) => ResumedBecause::Expired,
                };
                Some(self.resumed(*call, why, reason.clone()))
            }
            Entry::OutcomeSettled { call, happened, .. } => {
                self.in_doubt.retain(|known| known != call);
                let why = match happened {
                    true => ResumedBecause::Happened,
                    false => ResumedBecause::DidNotHappen,
                };
                let event = self.resumed(*call, why, None);
                self.calls.remove(call);
                Some(event)
            }
            Entry::Started { call, child, .. } => self.started(run, *call, *child),
            // The approval requests are there from now on.
            Entry::Suspended => self.suspended(run),
            Entry::Recovered if run == self.root => Some(SessionEvent::Resumed {
                why: ResumedBecause::Recovered,
                action_id: None,
                task_id: None,
                tool: None,
                detail: None,
            }),
            Entry::User(_)
            | Entry::Result { .. }
            | Entry::Prompted { .. }
            | Entry::Halted
            | Entry::Recovered
            | Entry::Resumed { .. } => None,
        };
        event.map(Projected::Event).into_iter().collect()
    }

    /// The event of text that arrives, if it has one.
    pub(super) fn live(&self, run: RunId, event: Event) -> Option<SessionEvent> {
        let task_id = self.task(run);
        match event {
            Event::Delta { text } => Some(SessionEvent::Delta { task_id, text }),
            Event::Reset => Some(SessionEvent::Reset { task_id, fault: None }),
            _ => None,
        }
    }

    /// The plan has another version.
    pub(super) fn set_plan(&mut self, tasks: &[Task]) {
        self.plan = tasks.to_vec();
    }

    fn task(&self, run: RunId) -> Option<TaskId> {
        self.progress.get(&run).map(|progress| progress.task)
    }

    fn learn(&mut self, run: RunId, call: &Proposed) {
        let progress = self.progress.get(&run);
        let known = Call {
            task: progress.map(|progress| progress.task),
            step: progress.map(|progress| progress.step),
            tool: tool_name(call),
            arguments: Arc::from(call.call.args.clone()),
            is_sent: false,
        };
        self.calls.insert(call.id, known);
    }

    fn turn(&mut self, run: RunId, turn: &ModelTurn, calls: &[Proposed]) -> Option<SessionEvent> {
        let reflects = self.progress.get(&run).and_then(|progress| progress.phase) == Some(Phase::Reflect);
        for call in calls {
            match &call.target {
                Target::Verdict(Ok(Verdict::Reflect(reflection))) => {
                    self.reflections.insert(call.id, Ok(Reflection::clone(reflection)));
                }
                Target::Verdict(Err(why)) if reflects => {
                    self.reflections.insert(call.id, Err(why.clone()));
                }
                // What ends a run is no call of a tool.
                Target::Verdict(_) => {}
                Target::Tool(_) | Target::Unresolved(_) | Target::Agent(_) | Target::Unknown => self.learn(run, call),
            }
        }
        let progress = self.progress.get(&run)?;
        (progress.phase == Some(Phase::Reason)).then(|| SessionEvent::Phase {
            task_id: progress.task,
            step: progress.step,
            phase: Phase::Reason,
            again: false,
            text: Some(turn.text()),
        })
    }

    fn phase(&mut self, run: RunId, phase: Phase, again: bool) -> Option<SessionEvent> {
        let progress = self.progress.get_mut(&run)?;
        if phase == Phase::Reason && !again {
            progress.step += 1;
        }
        progress.phase = Some(phase);
        Some(SessionEvent::Phase {
            task_id: progress.task,
            step: progress.step,
            phase,
            again,
            text: None,
        })
    }

    /// A call is sent again under its key after a crash; that is the same call.
    fn started(&mut self, run: RunId, id: ActionId, child: Option<RunId>) -> Option<SessionEvent> {
        if let Some((child, task)) = child.zip(self.tasks.get(&id).copied()) {
            let begins = Progress {
                task,
                step: 0,
                phase: None,
            };
            let is_new = !self.progress.contains_key(&child);
            self.progress.entry(child).or_insert(begins);
            let title = self.plan.iter().find(|known| known.id == task);
            return is_new.then(|| SessionEvent::TaskStarted {
                task_id: task,
                title: title.map(|task| task.title.clone()).unwrap_or_default(),
                run_id: child,
                max_steps: self.max_steps,
            });
        }
        if let Some((child, progress)) = child.zip(self.progress.get(&run).copied()) {
            self.progress.entry(child).or_insert(progress);
        }
        let call = self.calls.get_mut(&id)?;
        if std::mem::replace(&mut call.is_sent, true) {
            return None;
        }
        Some(SessionEvent::ToolCall {
            task_id: call.task,
            step: call.step,
            action_id: id,
            tool: Arc::clone(&call.tool),
            arguments: Arc::clone(&call.arguments),
        })
    }
}

// The events of decisions: what the work waits for, and why it continues.

impl Projection {
    fn decided(&mut self, run: RunId, id: ActionId, decision: &PolicyDecision) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match decision {
            PolicyDecision::Allow { arguments, .. } => call.arguments = Arc::clone(arguments),
            PolicyDecision::RequireApproval { arguments, details, .. } => {
                call.arguments = Arc::clone(arguments);
                self.approvals.insert(id, (run, details.reason.clone()));
            }
            PolicyDecision::Refuse { .. } => {}
        }
    }

    /// A run waits for the approvals of its own calls; the outermost one also for settlements, once nothing else is left.
    /// It is suspended with a run that it called as well, which says nothing new.
    fn suspended(&self, run: RunId) -> Option<SessionEvent> {
        let own = self.approvals.iter().filter(|(_, (of, _))| *of == run);
        let mut waiting_for: Vec<_> = own
            .filter_map(|(id, (_, reason))| {
                let call = self.calls.get(id)?;
                Some(waiting(*id, call, WaitingKind::Approval, reason.clone()))
            })
            .collect();
        if run == self.root && self.approvals.is_empty() {
            let reason = "It is unknown whether the call had its effect.";
            let in_doubt = self.in_doubt.iter();
            waiting_for.extend(in_doubt.filter_map(|id| {
                let call = self.calls.get(id)?;
                Some(waiting(*id, call, WaitingKind::InDoubt, reason.to_owned()))
            }));
        }
        (!waiting_for.is_empty()).then_some(SessionEvent::Waiting { waiting_for })
    }

    fn resumed(&self, id: ActionId, why: ResumedBecause, detail: Option<String>) -> SessionEvent {
        let call = self.calls.get(&id);
        SessionEvent::Resumed {
            why,
            action_id: Some(id),
            task_id: call.and_then(|call| call.task),
            tool: call.map(|call| Arc::clone(&call.tool)),
            detail,
        }
    }
}

fn waiting(id: ActionId, call: &Call, kind: WaitingKind, reason: String) -> WaitingCall {
    WaitingCall {
        kind,
        task_id: call.task,
        action_id: id,
        tool: Arc::clone(&call.tool),
        arguments: Arc::clone(&call.arguments),
        reason,
    }
}

// The events of results: of tools, of reflections, of tasks.

impl Projection {
    fn result(&mut self, run: RunId, id: ActionId, result: &CallResult) -> Vec<Projected> {
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
