//! The plan of a planning session (P-201 to P-205): its tasks in order, and how a draft becomes the next version of it.
//!
//! A draft comes from the model, or from a person who edits the plan; both are checked in the same way. Tasks that a
//! draft keeps keep their ids, and an id is never used again. While a confirmed plan is worked through, reflections
//! change it ([`TaskChange`], P-304).

mod change;
mod draft;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ids::{PlanningSessionId, RunId};
use super::names::{Shape, Shaped, names, record};
use super::planning_session::SessionStatus;
use super::time::Timestamp;
pub use change::{MOST_REPLACED, MOST_TASKS_EVER, TaskChange};
pub use draft::{Draft, DraftTask, PlanError, schema};

/// The most tasks of a draft.
pub const MOST_TASKS: usize = 30;
/// The longest plan as JSON, in bytes.
pub const MOST_BYTES: usize = 64 * 1024;
/// The longest title, in characters.
pub const TITLE: usize = 120;
/// The longest goal, in characters.
pub const GOAL: usize = 2000;
/// The longest condition of a task, in characters.
pub const DONE_WHEN: usize = 500;

names! {
    /// The status of a task.
    TaskStatus {
        /// Not begun.
        Pending = "PENDING",
        /// It is worked on.
        InProgress = "IN_PROGRESS",
        /// Done, and seen to be done.
        Completed = "COMPLETED",
        /// It failed.
        Failed = "FAILED",
        /// A change of the plan made it unnecessary. It counts as done.
        Obsolete = "OBSOLETE",
    }
}

names! {
    /// Why a task ended without reaching its goal.
    TaskReason {
        /// It was called done three times in a row, and no result showed it.
        Unproven = "unproven",
        /// The same tool failed in the same way five times in a row.
        PersistentError = "persistent_error",
        /// The model repeated the same call.
        DoomLoop = "doom_loop",
        /// The model gave it up.
        GaveUp = "gave_up",
        /// Another task takes its place.
        Replaced = "replaced",
        /// A change of the plan made it unnecessary.
        Obsolete = "obsolete",
        /// Its steps, or those of the session, are used up.
        StepLimit = "step_limit",
        /// The tokens of the session are used up.
        TokenLimit = "token_limit",
        /// The model was unavailable.
        ModelUnavailable = "model_unavailable",
        /// The model refused the request or its answer was blocked.
        ModelBlocked = "model_blocked",
        /// A tool that it needs is unavailable.
        ToolsUnavailable = "tools_unavailable",
        /// The deadline passed.
        Deadline = "deadline",
        /// The session was cancelled.
        Cancelled = "cancelled",
        /// gavel failed.
        Internal = "internal",
    }
}

/// The id of a task, unique in its session: `t1`, `t2` …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(u32);

impl TaskId {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The id of this number.
    pub const fn of(number: u32) -> Self {
        Self(number)
    }

    /// Parses an id; each has one spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let number: u32 = text.strip_prefix('t')?.parse().ok()?;
        let id = Self(number);
        (number > 0 && id.to_string() == text).then_some(id)
    }
}

impl FromStr for TaskId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or("a task's id is t1, t2 and so on")
    }
}

impl Shaped for TaskId {
    fn shape() -> Shape {
        Shape::Text(None, Some("t1"))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl TryFrom<String> for TaskId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no task id; an id is t1, t2 …"))
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> Self {
        id.to_string()
    }
}

record! {
    /// One task of a plan.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    Task as "PlanTask" {
        /// Its id.
        id: TaskId,
        /// Its session.
        session_id: PlanningSessionId,
        /// The task in a line.
        title: String,
        /// What it must reach.
        goal: String,
        /// What can be observed once it is done.
        done_when: String,
        /// The tools that it needs.
        tools: Vec<String>,
        /// Its status.
        status: TaskStatus,
        /// Why it failed or became unnecessary.
        status_reason: Option<StatusReason>,
        /// The task whose place it takes.
        replaces: Option<TaskId>,
        /// Its run, once it has begun.
        run_id: Option<RunId>,
        /// Its steps so far.
        steps: u32,
        /// When it began, RFC 3339.
        started_at: Option<Timestamp>,
        /// When it ended.
        completed_at: Option<Timestamp>,
    }
}

record! {
    /// Why a task ended without reaching its goal.
    #[derive(PartialEq, Eq)]
    StatusReason as "PlanTaskReason" {
        /// The reason.
        code: TaskReason,
        /// Details.
        detail: String,
    }
}

impl Task {
    /// A task that has not begun, without a text.
    pub fn new(id: TaskId, session: PlanningSessionId) -> Self {
        Self {
            id,
            session_id: session,
            title: String::new(),
            goal: String::new(),
            done_when: String::new(),
            tools: Vec::new(),
            status: TaskStatus::Pending,
            status_reason: None,
            replaces: None,
            run_id: None,
            steps: 0,
            started_at: None,
            completed_at: None,
        }
    }
}

/// The tasks of a session, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The number of the last id that was given, also to a task that is gone.
    pub last: u32,
}

impl Plan {
    /// The next version of a plan: this draft, with the ids of the tasks that it keeps. `current` is the version so
    /// far, and `tools` are all that a task may name.
    ///
    /// # Errors
    /// All errors of the draft, each with its place.
    pub fn of(
        draft: Draft,
        session: PlanningSessionId,
        current: Option<&Self>,
        tools: &[String],
    ) -> Result<Self, Vec<PlanError>> {
        let kept = draft.check(current, tools)?;
        let mut last = current.map_or(0, |plan| plan.last);
        let tasks = draft.tasks.into_iter().zip(kept).map(|(task, kept)| {
            let id = kept.unwrap_or_else(|| {
                last += 1;
                TaskId(last)
            });
            Task {
                title: task.title.trim().to_owned(),
                goal: task.goal.trim().to_owned(),
                done_when: task.done_when.trim().to_owned(),
                tools: task.tools,
                ..Task::new(id, session)
            }
        });
        let tasks = tasks.collect();
        let plan = Self { tasks, last };
        let bytes = plan.to_json().len();
        if bytes > MOST_BYTES {
            let detail = format!("the plan has {bytes} bytes as JSON; at most {MOST_BYTES} are allowed");
            return Err(vec![PlanError::new("/tasks", detail)]);
        }
        Ok(plan)
    }

    /// Reads a stored plan.
    ///
    /// # Errors
    /// The text is damaged, or of a later version.
    pub fn read(text: &str, last: u32) -> Result<Self, serde_json::Error> {
        let tasks = serde_json::from_str(text)?;
        Ok(Self { tasks, last })
    }

    /// The tasks as one JSON text, the form in which a plan is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.tasks).unwrap_or_else(|error| unreachable!("tasks print as JSON: {error}"))
    }

    /// A session that has ended has no task in progress: such a task ends with it, for this reason.
    pub fn end_with(&mut self, status: SessionStatus) {
        let (reason, detail) = match status {
            SessionStatus::DeadlineExceeded => (TaskReason::Deadline, "the deadline passed during this task"),
            SessionStatus::Cancelled => (TaskReason::Cancelled, "the session was cancelled during this task"),
            _ => (TaskReason::Internal, "the session ended during this task"),
        };
        let tasks = self.tasks.iter_mut();
        let at_work = tasks.filter(|task| task.status == TaskStatus::InProgress);
        at_work.for_each(|task| task.fail(reason, detail));
    }

    /// The task of this id, to be changed.
    pub fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// The task of this id.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

// What a plan is made from besides the draft that the model hands in.

/// What the drafts of a run that plans are checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The session.
    pub session: PlanningSessionId,
    /// The tools that a task may name.
    pub tools: Vec<String>,
    /// The version that the draft refines; none for the first one.
    pub current: Option<Plan>,
}

impl Basis {
    /// Reads a draft, and makes the next version of the plan of it.
    ///
    /// # Errors
    /// All errors of the draft, each with its place.
    pub fn plan(&self, draft: &str) -> Result<(Draft, Plan), Vec<PlanError>> {
        let read = serde_json::from_str::<Draft>(draft);
        let mut draft = read.map_err(|error| vec![PlanError::new("", error.to_string())])?;
        draft.forget_repeated_ids();
        let plan = Plan::of(draft.clone(), self.session, self.current.as_ref(), &self.tools)?;
        Ok((draft, plan))
    }
}

// What differs between two versions of a plan.

names! {
    /// What happened to a task.
    PlanOperation {
        /// The task is new.
        Add = "add",
        /// The task has another title, goal or condition, or other tools.
        Modify = "modify",
        /// The task became unnecessary, and will not be worked on.
        Obsolete = "obsolete",
        /// The task is gone.
        Remove = "remove",
    }
}

record! {
    /// How two versions of a plan differ in a task.
    #[derive(PartialEq, Eq)]
    Change as "PlanChange" {
        /// What happened to the task.
        op: PlanOperation,
        /// The task's id.
        task: TaskId,
        /// Its title; that before, if it was removed.
        title: String,
    }
}

/// What the next version of a plan adds, modifies, makes obsolete and removes, in this order. The order of tasks is not
/// compared.
pub fn difference(before: Option<&Plan>, after: &Plan) -> Vec<Change> {
    changes(before.map_or(&[][..], |plan| &plan.tasks), &after.tasks)
}

/// The same of two lists of tasks.
pub fn changes(before: &[Task], after: &[Task]) -> Vec<Change> {
    let change = |op: PlanOperation, task: &Task| Change {
        op,
        task: task.id,
        title: task.title.clone(),
    };
    let differs = |task: &Task| match before.iter().find(|before| before.id == task.id) {
        None => Some(PlanOperation::Add),
        Some(earlier) if is_obsolete(task) && !is_obsolete(earlier) => Some(PlanOperation::Obsolete),
        Some(earlier) if content(earlier) != content(task) => Some(PlanOperation::Modify),
        Some(_) => None,
    };
    let later = after.iter().filter_map(|task| Some(change(differs(task)?, task)));
    let gone = before
        .iter()
        .filter(|task| after.iter().all(|later| later.id != task.id));
    let gone = gone.map(|task| change(PlanOperation::Remove, task));
    let mut changes: Vec<_> = later.chain(gone).collect();
    // Stable: the tasks of each kind keep their order.
    changes.sort_by_key(|change| change.op);
    changes
}

fn is_obsolete(task: &Task) -> bool {
    task.status == TaskStatus::Obsolete
}

fn content(task: &Task) -> (&str, &str, &str, &[String]) {
    (&task.title, &task.goal, &task.done_when, &task.tools)
}

#[cfg(test)]
mod tests;
