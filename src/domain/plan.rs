//! The plan of a planning session (REQUIREMENTS P-201 to P-205): its tasks in order, and how a draft becomes the next
//! version of it.
//!
//! A draft comes from the model, or from a person who edits the plan; both are checked in the same way. Tasks that a
//! draft keeps keep their ids, and an id is never used again.

mod difference;
mod draft;

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::difference::{Change, difference};
pub use self::draft::{Draft, DraftTask, PlanError, schema};
use super::ids::{PlanningSessionId, RunId};
use super::names::names;

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

/// The id of a task, unique in its session: `t1`, `t2` …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(u32);

impl TaskId {
    /// Parses an id; each has one spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number: u32 = text.strip_prefix('t')?.parse().ok()?;
        let id = Self(number);
        (number > 0 && id.to_string() == text).then_some(id)
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

/// One task of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanTask)]
pub struct Task {
    /// Its id.
    #[schema(value_type = String, example = "t1")]
    pub id: TaskId,
    /// Its session.
    #[schema(value_type = String, format = "uuid")]
    pub session_id: PlanningSessionId,
    /// The task in a line.
    pub title: String,
    /// What it must reach.
    pub goal: String,
    /// What can be observed once it is done.
    pub done_when: String,
    /// The tools that it needs.
    pub tools: Vec<String>,
    /// Its status.
    pub status: TaskStatus,
    /// Its run, once it has begun.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub run_id: Option<RunId>,
}

/// The tasks of a session, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let tasks = draft.tasks.into_iter().zip(kept).map(|(task, kept)| Task {
            id: kept.unwrap_or_else(|| {
                last += 1;
                TaskId(last)
            }),
            session_id: session,
            title: task.title.trim().to_owned(),
            goal: task.goal.trim().to_owned(),
            done_when: task.done_when.trim().to_owned(),
            tools: task.tools,
            status: TaskStatus::Pending,
            run_id: None,
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
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.tasks).unwrap_or_else(|error| unreachable!("tasks print as JSON: {error}"))
    }

    /// The task of this id.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

#[cfg(test)]
mod tests;
