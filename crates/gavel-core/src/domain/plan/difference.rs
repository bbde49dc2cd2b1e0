//! What differs between two versions of a plan.

use super::super::names::{names, record};
use super::{Plan, Task, TaskId, TaskStatus};

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
#[must_use]
pub fn difference(before: Option<&Plan>, after: &Plan) -> Vec<Change> {
    changes(before.map_or(&[][..], |plan| &plan.tasks), &after.tasks)
}

/// The same of two lists of tasks.
#[must_use]
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
