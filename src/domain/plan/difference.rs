//! What differs between two versions of a plan.

use serde::{Deserialize, Serialize};

use super::{Plan, Task, TaskId};

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
    /// The task is gone.
    Remove {
        /// Its id.
        task: TaskId,
        /// Its last title.
        title: String,
    },
}

/// What the next version of a plan adds, modifies and removes, in this order. The order of tasks is not compared.
#[must_use]
pub fn difference(before: Option<&Plan>, after: &Plan) -> Vec<Change> {
    let before = before.map_or(&[][..], |plan| &plan.tasks);
    let earlier = |task: &Task| before.iter().find(|before| before.id == task.id);
    let (mut added, mut modified) = (Vec::new(), Vec::new());
    for task in &after.tasks {
        let (id, title) = (task.id, task.title.clone());
        match earlier(task) {
            None => added.push(Change::Add { task: id, title }),
            Some(earlier) if content(earlier) != content(task) => modified.push(Change::Modify { task: id, title }),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|task| after.task(task.id).is_none());
    let removed = gone.map(|task| Change::Remove {
        task: task.id,
        title: task.title.clone(),
    });
    added.into_iter().chain(modified).chain(removed).collect()
}

fn content(task: &Task) -> (&str, &str, &str, &[String]) {
    (&task.title, &task.goal, &task.done_when, &task.tools)
}
