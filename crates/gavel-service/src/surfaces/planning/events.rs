//! Watches a planning session: one stream over the logs of its runs, in the order of their creation, on any process.
//!
//! An event's id is its place: the number of the run, the position in the log of that run, and a number among the events
//! of that position. Every event is made of what is stored and never changes, so each process makes the same ones. The
//! log of a run is read as its own watchers read it ([`Watch`]). Between two runs the session waits for a person, and
//! no process announces what comes next: its row is read as often as readers read a run that another process executes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::Planning;
use crate::api::events::{CallError, Event, Numbered, RunEvent};
use crate::api::planning::{AnyEvent, Cleanup, SessionEvent, Version, VersionKind};
use crate::api::runs::AgentRun;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::ids::{ActionId, PlanningSessionId, RunId, UserId};
use crate::domain::journal::Phase;
use crate::domain::plan::{Task, TaskId, TaskReason, TaskStatus};
use crate::domain::planning_session::{SessionStatus, TASK_WORKER};
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::engine::strategy::plan::{Execution, TaskOutcome};
use crate::ports::planning::StoredSession;
use crate::surfaces::caller::{Caller, Identity};
use crate::surfaces::problem::Problem;
use crate::surfaces::runs::{Sink, Watch};

/// What a reader of a session gets.
pub enum Watched {
    /// The events that follow.
    Events(Watch<SessionLine>),
    /// Nothing: the reader has received the last event already.
    Reported,
    /// Nothing: the session has no run of this number.
    UnknownEvent,
}

/// Makes the events of one session.
struct Reader {
    planning: Arc<Planning>,
    /// The session's user, as whom it is read on: whether the caller may read it was decided at the start.
    owner: Caller,
    session: PlanningSessionId,
    /// What the reader has received.
    after: EventId,
    /// The last event that is stored.
    last: EventId,
    runs: Vec<RunId>,
    sink: Sink<SessionLine>,
}

/// An event with its place.
#[derive(Clone, Debug)]
pub struct SessionLine {
    /// Its id. Text that arrives has the id of the event before it, since it is never stored.
    pub id: EventId,
    /// The task that it belongs to.
    pub task: Option<TaskId>,
    /// The step of the task.
    pub step: Option<u32>,
    /// What happened, in which run.
    pub event: RunEvent<AnyEvent>,
}

/// A run that has ended, and what was shown after it.
struct After {
    index: usize,
    /// The position after the last entry of the run.
    end: u64,
    /// The run; `None` if it is no longer kept.
    run: Option<Box<AgentRun>>,
    is_execution: bool,
    /// Were the plan that it made, and the status, sent?
    is_shown: bool,
    /// The edits that were sent.
    edits: u32,
    /// The version that was current when the versions were read last.
    version: u32,
}

impl Planning {
    /// Streams the events of a session, after this one, until it has ended.
    ///
    /// # Errors
    /// There is no such session; the store is unavailable.
    pub async fn watch(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        after: Option<EventId>,
    ) -> Result<Watched, Problem> {
        let stored = self.readable(caller, user, session).await?;
        let owner = Caller {
            identity: Identity::User(stored.user),
            ..caller.clone()
        };
        let runs = self.sessions.runs(stored.id).await?;
        if let Some(after) = after {
            let index = (after.run as usize).checked_sub(1);
            let Some(run) = index.and_then(|index| runs.get(index)).copied() else {
                return Ok(Watched::UnknownEvent);
            };
            // The result has the position after the end of the last run.
            let is_last = after.run as usize == runs.len() && after.position >= 2;
            if stored.status.has_ended() && is_last && self.runs.is_reported(&owner, run, after.position - 1).await? {
                return Ok(Watched::Reported);
            }
        }
        let planning = Arc::clone(self);
        let make = move |sink| {
            let reader = Reader {
                planning,
                owner,
                session,
                after: after.unwrap_or_default(),
                last: EventId::default(),
                runs,
                sink,
            };
            reader.follow()
        };
        Ok(Watched::Events(Watch::new(self.runs.stopping().clone(), make)))
    }
}

impl Reader {
    /// Hands over all events until the session has ended.
    async fn follow(mut self) -> Result<(), Problem> {
        // What a reader has received of earlier runs is not read again.
        let mut index = (self.after.run as usize).saturating_sub(1);
        while let Some(run) = self.runs.get(index).copied() {
            let after = self.within(index, run).await?;
            if self.planning.runs.stopping().is_cancelled() || !self.after(after).await? {
                break;
            }
            index += 1;
        }
        Ok(())
    }

    /// Hands over a stored event, unless the reader has received it.
    async fn push(&mut self, line: SessionLine) {
        self.last = line.id;
        if line.id > self.after {
            self.sink.send(line).await;
        }
    }
}

impl SessionLine {
    /// An event of the session in this run, or after it.
    fn of_session(id: EventId, run_id: RunId, at: Option<Timestamp>, event: SessionEvent) -> Self {
        let what = AnyEvent::Session(event);
        Self {
            id,
            task: None,
            step: None,
            event: RunEvent { run_id, at, what },
        }
    }
}

/// There is a version of the plan.
fn plan(id: EventId, run: RunId, version: Version) -> SessionLine {
    let at = Some(version.at);
    let version = Box::new(version);
    SessionLine::of_session(id, run, at, SessionEvent::Plan { version })
}

/// An id in the log of the run of this index.
fn at_run(index: usize, position: u64, part: u32) -> EventId {
    EventId {
        run: u32::try_from(index + 1).unwrap_or(u32::MAX),
        position,
        part,
    }
}

/// Where the events of a run of a session, and of the runs that it called, belong in the work on the plan: a fold over
/// these events, the same at every process.
struct Places {
    /// The most steps of a task.
    max_steps: u32,
    /// The tasks as they are known, for their titles.
    plan: Vec<Task>,
    /// The calls of the outermost run that work on tasks.
    tasks: HashMap<ActionId, TaskId>,
    /// The task of each run below it, and the step; 0 before the first one.
    runs: HashMap<RunId, (TaskId, u32)>,
    /// The calls in doubt, which the outermost run learns to be settled.
    in_doubt: HashMap<ActionId, (TaskId, u32)>,
}

/// A task, and its step.
type Place = (Option<TaskId>, Option<u32>);

impl Places {
    fn new(execution: Option<&Execution>) -> Self {
        Self {
            max_steps: execution.map_or(0, |execution| execution.rules.limits.max_steps_per_task),
            plan: execution
                .map(|execution| execution.plan.tasks.clone())
                .unwrap_or_default(),
            tasks: HashMap::new(),
            runs: HashMap::new(),
            in_doubt: HashMap::new(),
        }
    }

    /// The event with its place; what begins and ends a task is an event of the session. `None` if it says nothing new.
    fn place(&mut self, event: RunEvent) -> Option<(Place, RunEvent<AnyEvent>)> {
        let RunEvent { run_id, at, what } = event;
        let mut place = self.runs.get(&run_id).copied();
        match &what {
            // The call of the step follows.
            Event::Step {
                action_id, step, agent, ..
            } => {
                if agent == TASK_WORKER {
                    self.tasks.insert(*action_id, TaskId::of(*step));
                }
                return None;
            }
            Event::AgentCall {
                action_id,
                child_run_id,
                ..
            } => match (self.tasks.get(action_id), place) {
                (Some(task), _) => return self.started(*task, *child_run_id, at),
                (None, Some(place)) => drop(self.runs.insert(*child_run_id, place)),
                (None, None) => {}
            },
            Event::ToolResult {
                action_id, data, error, ..
            } => {
                if let Some(task) = self.tasks.get(action_id) {
                    return Some(self.ended(*task, run_id, at, data.as_deref(), error.as_ref()));
                }
                let is_in_doubt = error.as_ref().is_some_and(|error| error.code == FailureCode::InDoubt);
                self.in_doubt
                    .extend(place.filter(|_| is_in_doubt).map(|place| (*action_id, place)));
            }
            Event::OutcomeSettled { action_id, .. } => place = self.in_doubt.remove(action_id),
            Event::Phase {
                phase: Phase::Reason,
                again: false,
            } => {
                if let Some((_, step)) = self.runs.get_mut(&run_id) {
                    *step += 1;
                }
                place = self.runs.get(&run_id).copied();
            }
            _ => {}
        }
        let what = AnyEvent::Run(what);
        let step = place.map(|(_, step)| step).filter(|step| *step > 0);
        Some(((place.map(|(task, _)| task), step), RunEvent { run_id, at, what }))
    }

    /// After a crash the same run continues.
    fn started(&mut self, task: TaskId, run_id: RunId, at: Option<Timestamp>) -> Option<(Place, RunEvent<AnyEvent>)> {
        if self.runs.contains_key(&run_id) {
            return None;
        }
        self.runs.insert(run_id, (task, 0));
        let known = self.plan.iter().find(|known| known.id == task);
        let what = AnyEvent::Session(SessionEvent::TaskStarted {
            title: known.map(|task| task.title.clone()).unwrap_or_default(),
            max_steps: self.max_steps,
        });
        Some(((Some(task), None), RunEvent { run_id, at, what }))
    }

    fn ended(
        &mut self,
        task: TaskId,
        caller: RunId,
        at: Option<Timestamp>,
        data: Option<&RawValue>,
        error: Option<&CallError>,
    ) -> (Place, RunEvent<AnyEvent>) {
        let of_task = self.runs.iter().find(|(_, (of, _))| *of == task);
        let (run_id, reached) = of_task.map_or((caller, 0), |(run, (_, step))| (*run, *step));
        let outcome = data.and_then(|data| TaskOutcome::read(data).ok());
        let event = match outcome {
            Some(outcome) => {
                self.plan = outcome.plan.tasks;
                SessionEvent::TaskEnded {
                    status: outcome.status,
                    reason: outcome.reason,
                    detail: outcome.detail,
                    summary: outcome.summary,
                    steps: outcome.steps,
                }
            }
            // Its run did not say so itself.
            None => SessionEvent::TaskEnded {
                status: TaskStatus::Failed,
                reason: Some(match error.map(|error| error.code) {
                    Some(FailureCode::Cancelled) => TaskReason::Cancelled,
                    _ => TaskReason::Internal,
                }),
                detail: error.map(|error| error.message.clone()).unwrap_or_default(),
                summary: String::new(),
                steps: reached,
            },
        };
        let what = AnyEvent::Session(event);
        ((Some(task), None), RunEvent { run_id, at, what })
    }
}

// The place of an event in the events of its session.

/// The place of an event in the events of its session. It is the same at every process, and after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The run: 1, 2, 3 … in the order in which the runs of the session were created.
    pub run: u32,
    /// The position in the log of that run. What follows the run has the position after its last entry.
    pub position: u64,
    /// The events of one position: 0, 1, 2 …
    pub part: u32,
}

impl EventId {
    /// Parses an id; each has one spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let (run, position, part) = (next()?, next()?, next()?);
        let id = Self {
            run: run.parse().ok()?,
            position: position.parse().ok()?,
            part: part.parse().ok()?,
        };
        (id.run > 0 && id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.position, self.part)
    }
}

/// Versions per read, each with its whole plan.
const VERSIONS: u32 = 20;

impl Planning {
    /// All versions of a plan, in order.
    async fn all_versions(&self, session: PlanningSessionId) -> Result<Vec<Version>, Problem> {
        let mut versions: Vec<Version> = Vec::new();
        loop {
            let after = versions.last().map_or(0, |last| last.version);
            let page = self.sessions.versions(session, after, VERSIONS).await?;
            if page.is_empty() {
                return Ok(versions);
            }
            versions.extend(page);
        }
    }
}

/// The version that a run made as a whole; the work on a plan changes it, and makes none.
fn made(versions: &[Version], run: RunId) -> Option<&Version> {
    let is_whole = |version: &&Version| matches!(version.kind, VersionKind::Proposed | VersionKind::Refined);
    versions.iter().filter(is_whole).find(|version| version.run_id == run)
}

/// The number of the last version of these runs; 0 if there is none.
fn last_version(runs: &[RunId], versions: &[Version]) -> u32 {
    let of_runs = versions.iter().filter(|version| runs.contains(&version.run_id));
    of_runs.map(|version| version.version).max().unwrap_or(0)
}

/// The part of the first edit after a run; the parts before it are the plan that the run made, and the status.
const EDITS: u32 = 2;

impl Reader {
    /// Hands over the log of a run.
    async fn within(&mut self, index: usize, run: RunId) -> Result<After, Problem> {
        let planning = Arc::clone(&self.planning);
        let (runs, looks) = (&planning.runs, planning.runs.looks());
        let execution = looks.read(|| runs.settings_of(run)).await?.execution;
        let versions = looks.read(|| planning.all_versions(self.session)).await?;
        let mut watch = looks.read(|| runs.watch(&self.owner, None, run, 0)).await?;
        let mut version = last_version(&self.runs[..index], &versions);
        let is_execution = execution.is_some();
        let status = SessionEvent::Status {
            status: match is_execution {
                true => SessionStatus::Executing,
                false => SessionStatus::Planning,
            },
            plan_version: version,
            detail: None,
        };
        self.push(SessionLine::of_session(at_run(index, 0, 0), run, None, status))
            .await;
        let mut places = Places::new(execution.as_deref());
        let mut end = None;
        while let Some(Numbered { number, event }) = watch.next().await? {
            if let Event::End { run } = event.what {
                end = Some((number, run));
                break;
            }
            let (is_live, of) = (event.at.is_none(), event.run_id);
            let changes_plan = matches!(&event.what, Event::Reflection { accepted: true, plan_changes, .. } if !plan_changes.is_empty());
            let Some(((task, step), event)) = places.place(event) else {
                continue;
            };
            if is_live {
                // Text is shown although its id is that of an event which the reader has received.
                let id = self.last.max(self.after);
                self.sink.send(SessionLine { id, task, step, event }).await;
            } else {
                let id = at_run(index, number, 0);
                self.push(SessionLine { id, task, step, event }).await;
            }
            if changes_plan {
                self.last = at_run(index, number, 1);
                let changed = || planning.sessions.versions(self.session, version, 1);
                let changed = looks.read(changed).await?.into_iter().next();
                let is_next = |next: &Version| next.version == version + 1 && next.kind == VersionKind::Changed;
                if let Some(changed) = changed.filter(is_next) {
                    version += 1;
                    places.plan.clone_from(&changed.plan);
                    self.push(plan(self.last, of, changed)).await;
                }
            }
        }
        // Without its end, the run is no longer kept.
        let (end, run) = end.map_or((self.last.position + 1, None), |(number, run)| (number, Some(run)));
        Ok(After {
            index,
            end,
            run,
            is_execution,
            is_shown: false,
            edits: 0,
            version: 0,
        })
    }

    /// Hands over what follows a run that has ended: its plan, edits, and the end of the session. True: another run
    /// follows.
    async fn after(&mut self, mut after: After) -> Result<bool, Problem> {
        let planning = Arc::clone(&self.planning);
        let looks = planning.runs.looks();
        let (index, mut patience) = (after.index, Duration::ZERO);
        loop {
            let stored = || planning.sessions.session(&self.owner.tenant, None, self.session);
            let Some(stored) = looks.read(stored).await? else {
                return Ok(false);
            };
            if index + 1 == self.runs.len() && self.runs[index] != stored.run {
                let runs = looks.read(|| planning.sessions.runs(stored.id)).await?;
                // Those that are known keep their numbers.
                let new: Vec<_> = runs.into_iter().filter(|run| !self.runs.contains(run)).collect();
                self.runs.extend(new);
                continue;
            }
            let has_next = index + 1 < self.runs.len();
            let is_at_work = matches!(stored.status, SessionStatus::Planning | SessionStatus::Executing);
            // If it is at work, its run has ended without moving it on; the sweep does that.
            if has_next || !is_at_work {
                if !after.is_shown || has_next || after.version != stored.version {
                    let versions = looks.read(|| planning.all_versions(self.session)).await?;
                    self.show(&mut after, &stored, &versions, has_next).await;
                }
                if has_next {
                    return Ok(true);
                }
                if stored.status.has_ended() {
                    self.end(&after, &stored).await?;
                    return Ok(false);
                }
            }
            planning.runs.before_next_look(self.runs[index], &mut patience).await;
        }
    }

    /// Shows the plan that the run made, the status after it, and the edits since.
    async fn show(&mut self, after: &mut After, stored: &StoredSession, versions: &[Version], has_next: bool) {
        let (index, end) = (after.index, after.end);
        let run = self.runs[index];
        let mut lines = Vec::new();
        let id = |part: u32| at_run(index, end, part);
        if !after.is_shown && !after.is_execution {
            let made = made(versions, run);
            lines.extend(made.map(|made| plan(id(0), run, made.clone())));
            let before = last_version(&self.runs[..index], versions);
            let is_left = has_next || !stored.status.has_ended();
            if made.is_some() || after.leaves_plan(before, is_left) {
                let status = SessionEvent::Status {
                    status: SessionStatus::AwaitingConfirmation,
                    plan_version: made.map_or(before, |made| made.version),
                    detail: after.failure().filter(|_| made.is_none()),
                };
                let at = made.map(|made| made.at);
                lines.push(SessionLine::of_session(id(1), run, at, status));
            }
        }
        after.is_shown = true;
        after.version = stored.version;
        let is_edit = |version: &&Version| version.kind == VersionKind::Edited && version.run_id == run;
        let edits = versions.iter().filter(is_edit);
        for (number, edit) in (0..).zip(edits).skip(after.edits as usize) {
            after.edits = number + 1;
            lines.push(plan(id(EDITS + number), run, edit.clone()));
        }
        for line in lines {
            self.push(line).await;
        }
    }

    /// The end of the session.
    async fn end(&mut self, after: &After, stored: &StoredSession) -> Result<(), Problem> {
        let (index, end) = (after.index, after.end);
        let planning = Arc::clone(&self.planning);
        let session = || planning.session(&self.owner, None, self.session);
        let session = planning.runs.looks().read(session).await?;
        let run = self.runs[index];
        if let Some(Cleanup { removed, left }) = stored.cleanup.clone() {
            let cleanup = SessionEvent::Cleanup { removed, left };
            self.push(SessionLine::of_session(at_run(index, end, 0), run, None, cleanup))
                .await;
        }
        let session = Box::new(session);
        let result = SessionEvent::Result { session };
        self.push(SessionLine::of_session(at_run(index, end + 1, 0), run, None, result))
            .await;
        Ok(())
    }
}

impl After {
    /// Does the session wait for the confirmation of the earlier version `before` after this run, which made none? Only
    /// the run and what follows it say so, since the session may have ended long ago.
    fn leaves_plan(&self, before: u32, is_left: bool) -> bool {
        let Some(run) = &self.run else { return false };
        let past_deadline = run.stop_reason == Some(StopReason::Deadline);
        before > 0 && !past_deadline && (is_left || run.status != RunStatus::Cancelled)
    }

    /// Why the run made no version.
    fn failure(&self) -> Option<String> {
        self.run.as_ref()?.error_message.clone()
    }
}

#[cfg(test)]
mod places_tests;

#[cfg(test)]
mod tests {
    use super::EventId;

    #[test]
    fn an_id_has_one_spelling_and_ids_are_ordered() {
        let id = |text: &str| EventId::parse(text).unwrap();
        for text in ["1.0.0", "2.17.1", "10.4294967296.2"] {
            assert_eq!(id(text).to_string(), text);
        }
        for invalid in [
            "", "1", "1.0", "0.0.0", "1.0.0.0", "01.0.0", "1.+1.0", "1.a.0", "-1.0.0", "1..0",
        ] {
            assert_eq!(EventId::parse(invalid), None, "{invalid:?}");
        }
        assert!(id("1.9.0") < id("1.10.0") && id("1.10.0") < id("1.10.1") && id("1.99.9") < id("2.0.0"));
    }
}
