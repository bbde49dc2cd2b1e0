//! What differs between two versions of a plan.

use serde::{Deserialize, Serialize};

use super::{Plan, Task, TaskId, TaskStatus};

/// One difference between a plan and its next version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Change {
    /// The task is new.
    Add {
        /// Its id.
        task: TaskId,
        /// Its title.
        title: String,
    },
    /// The task has another title, goal or condition, or other tools.
    Modify {
        /// Its id.
        task: TaskId,
        /// Its title from now on.
        title: String,
    },
    /// The task became unnecessary, and will not be worked on.
    Obsolete {
        /// Its id.
        task: TaskId,
        /// Its title.
        title: String,
    },
    /// The task is gone.
    Remove {
        /// Its id.
        task: TaskId,
        /// Its last title.
        title: String,
    },
}

/// What the next version of a plan adds, modifies, makes obsolete and removes, in this order. The order of tasks is not
/// compared.
#[must_use]
pub fn difference(before: Option<&Plan>, after: &Plan) -> Vec<Change> {
    let before = before.map_or(&[][..], |plan| &plan.tasks);
    let earlier = |task: &Task| before.iter().find(|before| before.id == task.id);
    let (mut added, mut modified, mut obsolete) = (Vec::new(), Vec::new(), Vec::new());
    for task in &after.tasks {
        let (id, title) = (task.id, task.title.clone());
        match earlier(task) {
            None => added.push(Change::Add { task: id, title }),
            Some(earlier) if is_obsolete(task) && !is_obsolete(earlier) => {
                obsolete.push(Change::Obsolete { task: id, title });
            }
            Some(earlier) if content(earlier) != content(task) => modified.push(Change::Modify { task: id, title }),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|task| after.task(task.id).is_none());
    let removed = gone.map(|task| Change::Remove {
        task: task.id,
        title: task.title.clone(),
    });
    added
        .into_iter()
        .chain(modified)
        .chain(obsolete)
        .chain(removed)
        .collect()
}

fn is_obsolete(task: &Task) -> bool {
    task.status == TaskStatus::Obsolete
}

fn content(task: &Task) -> (&str, &str, &str, &[String]) {
    (&task.title, &task.goal, &task.done_when, &task.tools)
}
