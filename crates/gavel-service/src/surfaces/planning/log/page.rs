//! One page of the log, collected from journals.

use crate::api::planning::ActionError;
use std::collections::HashMap;
use std::sync::Arc;

use super::{acted, error};
use crate::api::planning::LoggedAction;
use crate::domain::action::{ActionStatus, DID_NOT_HAPPEN};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, PolicyDecision, Proposed, Target};
use crate::domain::plan::TaskId;
use crate::domain::policy::Effect;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::engine::tool_name;

/// Collects a page of the log from journals.
pub(super) struct Page {
    after: u32,
    most: usize,
    count: u32,
    kept: Vec<Kept>,
    places: HashMap<ActionId, usize>,
}

/// An action of the page.
struct Kept {
    action: LoggedAction,
    /// Whether its last decision was that it requires approval, or an approval followed.
    asked: bool,
}

impl Page {
    pub(super) fn new(after: u32, most: usize) -> Self {
        Self {
            after,
            most,
            count: 0,
            kept: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Are there all actions that the page may hold? Their results may follow in the same journal.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= self.most
    }

    /// Takes the next entry of a task's journal, or of the cleanup, written at this time.
    pub(super) fn take(&mut self, task: Option<TaskId>, at_us: i64, entry: &Entry) {
        if let Entry::Step { call, .. } = entry {
            self.propose(task, at_us, call);
        }
        if let Entry::ModelTurn { calls, .. } = entry
            && let Some(call) = acted(calls)
        {
            self.propose(task, at_us, call);
        }
        self.follow(entry);
    }

    /// Takes the next entry of a planner's journal: the calls that its model chose. Code made the others.
    pub(super) fn take_of_planner(&mut self, at_us: i64, entry: &Entry) {
        if let Entry::ModelTurn { calls, .. } = entry {
            let chosen = calls.iter().filter(|call| !matches!(call.target, Target::Verdict(_)));
            chosen.for_each(|call| self.propose(None, at_us, call));
        }
        self.follow(entry);
    }

    /// What became of a proposed call.
    fn follow(&mut self, entry: &Entry) {
        match entry {
            Entry::Decided { call, decision } => self.with(*call, |kept| kept.decided(decision)),
            Entry::ApprovalResolved {
                call, approved: true, ..
            } => self.with(*call, |kept| kept.action.status = ActionStatus::Approved),
            Entry::Started { call, at_us, .. } => self.with(*call, |kept| {
                // A call that is repeated after a crash started when it was sent first.
                if kept.action.status != ActionStatus::Executing {
                    kept.action.at = Timestamp(*at_us);
                }
                kept.action.status = ActionStatus::Executing;
            }),
            Entry::Result { call, result } => self.with(*call, |kept| kept.ended(result)),
            _ => {}
        }
    }

    fn propose(&mut self, task: Option<TaskId>, at_us: i64, call: &Proposed) {
        self.count += 1;
        if self.count <= self.after || self.is_full() {
            return;
        }
        self.places.insert(call.id, self.kept.len());
        self.kept.push(Kept {
            action: LoggedAction {
                n: self.count,
                at: Timestamp(at_us),
                task_id: task,
                action_id: call.id,
                tool: tool_name(call).to_string(),
                arguments: call.call.args.clone().into(),
                status: ActionStatus::Planned,
                error: None,
                duration_ms: None,
                decided_by: None,
            },
            asked: false,
        });
    }

    fn with(&mut self, call: ActionId, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.places.get(&call).and_then(|place| self.kept.get_mut(*place)) {
            change(kept);
        }
    }

    /// The actions, with what persons settled. Once the run of the session has ended, none is executing any more.
    pub(super) fn into_actions(self, settled: &HashMap<ActionId, bool>, has_ended: bool) -> Vec<LoggedAction> {
        let actions = self.kept.into_iter().map(|kept| kept.action);
        actions
            .map(|mut action| {
                if has_ended && action.status == ActionStatus::Executing {
                    action.status = ActionStatus::InDoubt;
                }
                if action.status == ActionStatus::InDoubt
                    && let Some(happened) = settled.get(&action.action_id)
                {
                    settle(&mut action, *happened);
                }
                action
            })
            .collect()
    }
}

impl Kept {
    fn decided(&mut self, decision: &PolicyDecision) {
        let (arguments, by, effect) = match decision {
            PolicyDecision::Allow { arguments, by } => (Some(arguments), by.as_slice(), Effect::Allow),
            PolicyDecision::RequireApproval { arguments, by, .. } => {
                (Some(arguments), by.as_slice(), Effect::RequireApproval)
            }
            PolicyDecision::Refuse { by, .. } => (None, by.as_slice(), Effect::Deny),
        };
        if let Some(arguments) = arguments {
            self.action.arguments = Arc::clone(arguments);
        }
        // An approver has approved it since: what required the approval remains what decided it.
        if self.asked && effect == Effect::Allow && by.is_empty() {
            return;
        }
        self.asked = effect == Effect::RequireApproval;
        if self.asked {
            self.action.status = ActionStatus::AwaitingConfirmation;
        }
        let by: Vec<_> = by.iter().map(ToString::to_string).collect();
        self.action.decided_by = (!by.is_empty()).then(|| by.join(", "));
    }

    fn ended(&mut self, result: &CallResult) {
        let was_started = self.action.status == ActionStatus::Executing;
        let duration_ms = result.duration_us.max(0).unsigned_abs() / 1000;
        self.action.duration_ms = was_started.then_some(duration_ms);
        match &result.outcome {
            Ok(_) => end(&mut self.action, ActionStatus::Completed, None),
            Err(failure) => end(&mut self.action, status(failure.code), Some(error(failure))),
        }
    }
}

fn end(action: &mut LoggedAction, status: ActionStatus, error: Option<ActionError>) {
    action.status = status;
    action.error = error;
}

/// A person found out whether it happened.
fn settle(action: &mut LoggedAction, happened: bool) {
    match happened {
        true => end(action, ActionStatus::Completed, None),
        false => {
            let failure = CallFailure::new(FailureCode::ToolError, DID_NOT_HAPPEN);
            end(action, ActionStatus::Failed, Some(error(&failure)));
        }
    }
}

/// The status of an action that failed with this code.
fn status(code: FailureCode) -> ActionStatus {
    match code {
        FailureCode::InDoubt => ActionStatus::InDoubt,
        FailureCode::Rejected => ActionStatus::Rejected,
        FailureCode::Expired => ActionStatus::Expired,
        _ => ActionStatus::Failed,
    }
}
