//! The log of a session: the calls that the planner chose, the actions of all tasks, in order, and the cleanup (P-307).
//!
//! It is read from the journals of the runs, entry by entry: memory grows with the page, not with the session.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::Planning;
use crate::api::planning::{ActionError, LoggedAction, PullRequest};
use crate::domain::action::{ActionStatus, DID_NOT_HAPPEN};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallFailure, CallResult, Entry, PolicyDecision, Proposed, Target};
use crate::domain::plan::TaskId;
use crate::domain::policy::Effect;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::engine::strategy::plan::CLEANUP_STEP;
use crate::engine::tool_name;
use crate::ports::planning::StoredSession;
use crate::surfaces::StoreFailure;

/// The runs of the tasks in the order in which they began, and which in-doubt actions a person settled.
struct Work {
    tasks: Vec<(TaskId, RunId)>,
    settled: HashMap<ActionId, bool>,
    /// The entries about the calls that clean up, with their times.
    cleanup: Vec<(i64, Entry)>,
}

impl Planning {
    /// The tasks of the run that works through a plan.
    async fn work_of(&self, run: RunId) -> Result<Work, StoreFailure> {
        let mut steps: HashMap<ActionId, TaskId> = HashMap::new();
        let mut work = Work {
            tasks: Vec::new(),
            settled: HashMap::new(),
            cleanup: Vec::new(),
        };
        let mut cleanups = HashSet::new();
        let take = |at_us: i64, entry: Entry| match entry {
            Entry::Step {
                step: CLEANUP_STEP,
                ref call,
                ..
            } => {
                cleanups.insert(call.id);
                work.cleanup.push((at_us, entry));
            }
            Entry::Decided { call, .. } | Entry::Started { call, .. } | Entry::Result { call, .. }
                if cleanups.contains(&call) =>
            {
                work.cleanup.push((at_us, entry));
            }
            Entry::Step { step, call, .. } => {
                steps.insert(call.id, TaskId::of(step));
            }
            Entry::Started {
                call, child: Some(run), ..
            } => {
                let task = steps.get(&call).map(|task| (*task, run));
                // A step that is begun again has the same run.
                if let Some(task) = task.filter(|task| !work.tasks.contains(task)) {
                    work.tasks.push(task);
                }
            }
            Entry::OutcomeSettled { call, happened, .. } => {
                work.settled.insert(call, happened);
            }
            _ => {}
        };
        self.runs.each_entry(run, take).await?;
        Ok(work)
    }

    /// The in-doubt actions of the run that works through a plan that a person settled: did they happen?
    pub(super) async fn settled(&self, run: RunId) -> Result<HashMap<ActionId, bool>, StoreFailure> {
        Ok(self.work_of(run).await?.settled)
    }

    /// At most `most` actions of the log after number `after`, and all pull requests of the journals that were read for
    /// them: those of the whole session, if the page holds all actions.
    pub(super) async fn log_of(
        &self,
        stored: &StoredSession,
        (after, most): (u32, usize),
    ) -> Result<(Vec<LoggedAction>, Vec<PullRequest>), StoreFailure> {
        let mut page = Page::new(after, most);
        let mut pull_requests = PullRequests::default();
        let works = stored.started_us.map(|_| stored.run);
        for (run, _) in self.sessions.runs(stored.id).await? {
            if Some(run) != works && !page.is_full() {
                self.runs
                    .each_entry(run, |at_us, entry| page.take_of_planner(at_us, &entry))
                    .await?;
            }
        }
        let Some(run) = works else {
            return Ok((page.into_actions(&HashMap::new(), !stored.is_at_work), Vec::new()));
        };
        let work = self.work_of(run).await?;
        for (task, run) in &work.tasks {
            if page.is_full() {
                break;
            }
            let take = |at_us: i64, entry: Entry| {
                page.take(Some(*task), at_us, &entry);
                pull_requests.take(&entry);
            };
            self.runs.each_entry(*run, take).await?;
        }
        for (at_us, entry) in &work.cleanup {
            page.take(None, *at_us, entry);
        }
        Ok((
            page.into_actions(&work.settled, !stored.is_at_work),
            pull_requests.found,
        ))
    }
}

/// The call of a step: the first of its turn, since further ones are not made. A reflection is none.
fn acted(calls: &[Proposed]) -> Option<&Proposed> {
    calls.iter().find(|call| !matches!(call.target, Target::Verdict(_)))
}

/// Why an action failed, in the text for callers.
pub(super) fn error(failure: &CallFailure) -> ActionError {
    let own = failure.own.as_deref();
    ActionError {
        code: failure.code,
        tool_code: own.map(|own| own.code.clone()),
        details: own.map(|own| own.details.clone()).unwrap_or_default(),
        message: failure.for_callers().into_owned(),
    }
}

// One page of the log, collected from journals.

/// Collects a page of the log from journals.
struct Page {
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
    fn new(after: u32, most: usize) -> Self {
        Self {
            after,
            most,
            count: 0,
            kept: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Are there all actions that the page may hold? Their results may follow in the same journal.
    fn is_full(&self) -> bool {
        self.kept.len() >= self.most
    }

    /// Takes the next entry of a task's journal, or of the cleanup, written at this time.
    fn take(&mut self, task: Option<TaskId>, at_us: i64, entry: &Entry) {
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
    fn take_of_planner(&mut self, at_us: i64, entry: &Entry) {
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
    fn into_actions(self, settled: &HashMap<ActionId, bool>, has_ended: bool) -> Vec<LoggedAction> {
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

// The pull requests that a session opened, from the results of its calls.

/// The tool that opens one.
pub(super) const OPENS_PULL_REQUEST: &str = "createPullRequest";

/// Collects the pull requests from journals.
#[derive(Default)]
pub(super) struct PullRequests {
    calls: Vec<ActionId>,
    pub(crate) found: Vec<PullRequest>,
}

impl PullRequests {
    /// Takes the next entry of a task's journal.
    pub(crate) fn take(&mut self, entry: &Entry) {
        if let Entry::ModelTurn { calls, .. } = entry
            && let Some(call) = acted(calls).filter(|call| *tool_name(call) == *OPENS_PULL_REQUEST)
        {
            self.calls.push(call.id);
        }
        if let Entry::Result { call, result } = entry
            && let Ok(data) = &result.outcome
            && self.calls.contains(call)
        {
            self.found.extend(pull_request(data));
        }
    }
}

/// The pull request in a result; `None` if it has another form.
fn pull_request(data: &RawValue) -> Option<PullRequest> {
    let data: Value = serde_json::from_str(data.get()).ok()?;
    let made = data.get("pullRequest")?;
    Some(PullRequest {
        number: made.get("number")?.as_u64()?,
        url: made.get("htmlUrl")?.as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests;
