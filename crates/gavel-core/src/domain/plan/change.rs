//! Changes of a plan while it is worked through (P-304): all of one reflection are made, or none.

use serde::{Deserialize, Serialize};

use super::draft::{text_error, tool_errors};
use super::{DONE_WHEN, GOAL, MOST_BYTES, Plan, PlanError, StatusReason, TITLE, Task, TaskId, TaskReason, TaskStatus};
use crate::domain::ids::PlanningSessionId;

/// The most tasks of a plan, those of earlier versions included.
pub const MOST_TASKS_EVER: usize = 50;
/// How often an original task may be replaced.
pub const MOST_REPLACED: usize = 2;

/// One change that a reflection asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskChange {
    /// A new task.
    Add {
        /// The task in a line.
        title: String,
        /// What it must reach.
        goal: String,
        /// What can be observed once it is done.
        #[serde(rename = "doneWhen")]
        done_when: String,
        /// The tools that it needs.
        tools: Vec<String>,
        /// The task that it follows; absent: it comes last, or in place of the one that it replaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<TaskId>,
        /// The task at work, which ends without reaching its goal; this one takes its place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<TaskId>,
        /// Why.
        why: String,
    },
    /// Another text or other tools for a task that has not begun.
    Modify {
        /// Which task.
        task: TaskId,
        /// Its title from now on; absent: as before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Its goal from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goal: Option<String>,
        /// Its condition from now on.
        #[serde(default, rename = "doneWhen", skip_serializing_if = "Option::is_none")]
        done_when: Option<String>,
        /// Its tools from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<String>>,
        /// Why.
        why: String,
    },
    /// A task that has not begun is unnecessary.
    Obsolete {
        /// Which task.
        task: TaskId,
        /// Why.
        why: String,
    },
}

impl TaskChange {
    /// Why.
    pub fn why(&self) -> &str {
        match self {
            Self::Add { why, .. } | Self::Modify { why, .. } | Self::Obsolete { why, .. } => why,
        }
    }

    /// Does it replace the task at work?
    pub const fn replaces(&self) -> bool {
        matches!(self, Self::Add { replaces: Some(_), .. })
    }
}

impl Plan {
    /// The plan after these changes, made while the task `at_work` is worked on. `tools` are all that a task may name.
    ///
    /// # Errors
    /// All errors, each with its place in `changes`; then nothing is changed.
    pub fn changed(
        &self,
        session: PlanningSessionId,
        at_work: TaskId,
        changes: &[TaskChange],
        tools: &[String],
    ) -> Result<Self, Vec<PlanError>> {
        let mut plan = self.clone();
        let mut errors = Vec::new();
        let mut placed = Placed::default();
        for (at, change) in changes.iter().enumerate() {
            let place = |field: &str| format!("/plan_changes/{at}/{field}");
            if let Some(detail) = text_error(change.why(), DONE_WHEN) {
                errors.push(PlanError::new(place("why"), detail));
            }
            let made = match change {
                TaskChange::Add { .. } => plan.add(session, at_work, change, tools, &mut placed),
                TaskChange::Modify { task, .. } => plan.pending(*task).map(|task| task.modify(change, tools)),
                TaskChange::Obsolete { task, why } => plan.pending(*task).map(|task| {
                    task.status = TaskStatus::Obsolete;
                    task.status_reason = Some(StatusReason {
                        code: TaskReason::Obsolete,
                        detail: why.trim().to_owned(),
                    });
                    Vec::new()
                }),
            };
            let found = made.unwrap_or_else(|detail| vec![("task", detail)]);
            errors.extend(
                found
                    .into_iter()
                    .map(|(field, detail)| PlanError::new(place(field), detail)),
            );
        }
        let bytes = plan.to_json().len();
        if plan.tasks.len() > MOST_TASKS_EVER {
            let count = plan.tasks.len();
            let detail = format!("the plan would have {count} tasks; at most {MOST_TASKS_EVER} are allowed");
            errors.push(PlanError::new("/plan_changes", detail));
        } else if bytes > MOST_BYTES {
            let detail = format!("the plan would have {bytes} bytes as JSON; at most {MOST_BYTES} are allowed");
            errors.push(PlanError::new("/plan_changes", detail));
        }
        match errors.is_empty() {
            true => Ok(plan),
            false => Err(errors),
        }
    }

    /// A task that can still be changed.
    fn pending(&mut self, id: TaskId) -> Result<&mut Task, String> {
        match self.tasks.iter_mut().find(|task| task.id == id) {
            Some(task) if task.status == TaskStatus::Pending => Ok(task),
            Some(task) => Err(format!(
                "{id} is {}; only a task that is PENDING can be changed",
                task.status.as_str()
            )),
            None => Err(format!("{id} is no task of the plan")),
        }
    }

    fn add(
        &mut self,
        session: PlanningSessionId,
        at_work: TaskId,
        change: &TaskChange,
        tools: &[String],
        placed: &mut Placed,
    ) -> Result<Vec<(&'static str, String)>, String> {
        let TaskChange::Add {
            title,
            goal,
            done_when,
            tools: named,
            after,
            replaces,
            ..
        } = change
        else {
            return Ok(Vec::new());
        };
        let mut errors = texts(Some(title), Some(goal), Some(done_when));
        errors.extend(tool_errors(named, tools).map(|detail| ("tools", detail)));
        if let Some(replaced) = replaces {
            if *replaced != at_work {
                let detail = format!("is {replaced}; only the task at work can be replaced: {at_work}");
                errors.push(("replaces", detail));
            } else if self.replaced_before(at_work) >= MOST_REPLACED {
                let detail = format!("{at_work} stands for a task that was replaced {MOST_REPLACED} times already");
                errors.push(("replaces", detail));
            }
        }
        let follows = after.or(replaces.map(|_| at_work));
        let place = match follows {
            None => self.tasks.len(),
            Some(follows) => match self.tasks.iter().position(|task| task.id == follows) {
                Some(at) => at + 1 + placed.after(follows),
                None => {
                    errors.push(("after", format!("{follows} is no task of the plan")));
                    self.tasks.len()
                }
            },
        };
        self.last += 1;
        let task = Task {
            title: title.trim().to_owned(),
            goal: goal.trim().to_owned(),
            done_when: done_when.trim().to_owned(),
            tools: named.clone(),
            replaces: *replaces,
            ..Task::new(TaskId(self.last), session)
        };
        self.tasks.insert(place.min(self.tasks.len()), task);
        Ok(errors)
    }

    /// How many tasks this one stands for: it replaces one that replaced another.
    fn replaced_before(&self, task: TaskId) -> usize {
        let replaced = |id: &TaskId| self.task(*id)?.replaces;
        std::iter::successors(replaced(&task), replaced)
            .take(MOST_TASKS_EVER)
            .count()
    }

    /// The first task that has not begun.
    pub fn next_task(&self) -> Option<&Task> {
        self.tasks.iter().find(|task| task.status == TaskStatus::Pending)
    }

    /// A task that failed, and that no other task replaces.
    pub fn failed(&self) -> Option<&Task> {
        let replaced = |task: &Task| self.tasks.iter().any(|other| other.replaces == Some(task.id));
        self.tasks
            .iter()
            .find(|task| task.status == TaskStatus::Failed && !replaced(task))
    }
}

impl Task {
    fn modify(&mut self, change: &TaskChange, tools: &[String]) -> Vec<(&'static str, String)> {
        let TaskChange::Modify {
            title,
            goal,
            done_when,
            tools: named,
            ..
        } = change
        else {
            return Vec::new();
        };
        let mut errors = texts(title.as_deref(), goal.as_deref(), done_when.as_deref());
        if let Some(named) = named {
            errors.extend(tool_errors(named, tools).map(|detail| ("tools", detail)));
        }
        if title.is_none() && goal.is_none() && done_when.is_none() && named.is_none() {
            errors.push((
                "task",
                "nothing of it changes; give title, goal, doneWhen or tools".to_owned(),
            ));
        }
        let set = |text: &mut String, new: &Option<String>| {
            if let Some(new) = new {
                *text = new.trim().to_owned();
            }
        };
        set(&mut self.title, title);
        set(&mut self.goal, goal);
        set(&mut self.done_when, done_when);
        if let Some(named) = named {
            self.tools.clone_from(named);
        }
        errors
    }

    /// Marks it as ended without reaching its goal.
    pub fn fail(&mut self, reason: TaskReason, detail: &str) {
        self.status = TaskStatus::Failed;
        self.status_reason = Some(StatusReason {
            code: reason,
            detail: detail.to_owned(),
        });
    }
}

/// The tasks that were added after each task by one reflection, so that they keep their order.
#[derive(Default)]
struct Placed(Vec<TaskId>);

impl Placed {
    fn after(&mut self, task: TaskId) -> usize {
        let count = self.0.iter().filter(|other| **other == task).count();
        self.0.push(task);
        count
    }
}

fn texts(title: Option<&str>, goal: Option<&str>, done_when: Option<&str>) -> Vec<(&'static str, String)> {
    let texts = [
        ("title", title, TITLE),
        ("goal", goal, GOAL),
        ("doneWhen", done_when, DONE_WHEN),
    ];
    let invalid = texts.into_iter().filter_map(|(field, text, most)| {
        let detail = text_error(text?, most)?;
        Some((field, detail))
    });
    invalid.collect()
}
