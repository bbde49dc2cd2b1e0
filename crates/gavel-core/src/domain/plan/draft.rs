//! Drafts of plans, and what makes one valid.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DONE_WHEN, GOAL, MOST_TASKS, Plan, TITLE, TaskId};
use crate::domain::names::record;

record! {
    /// A plan as the model or a person writes it.
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[derive(PartialEq, Eq, Default)]
    Draft as "PlanDraft" {
        /// The plan in a few sentences.
        #[serde(default)]
        summary: String,
        /// The tasks, in the order in which they are to be done.
        tasks: Vec<DraftTask>,
        /// What the plan assumes.
        #[serde(default)]
        assumptions: Vec<String>,
        /// What may go wrong.
        #[serde(default)]
        risks: Vec<String>,
    }
}

record! {
    /// A task of a draft.
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[derive(PartialEq, Eq)]
    DraftTask as "PlanDraftTask" {
        /// The task of the current plan that this one continues; absent: a new task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<TaskId>,
        /// The task in a line.
        title: String,
        /// What it must reach.
        goal: String,
        /// What can be observed once it is done.
        done_when: String,
        /// The tools that it needs.
        tools: Vec<String>,
    }
}

/// An error in a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// JSON pointer into the draft.
    pub pointer: String,
    /// The value found and what is allowed.
    pub detail: String,
}

impl PlanError {
    pub(super) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

impl Draft {
    /// Makes a task new whose id an earlier task has already: a model that splits a task may name it twice.
    pub fn forget_repeated_ids(&mut self) {
        let mut taken = BTreeSet::new();
        for task in &mut self.tasks {
            task.id = task.id.filter(|id| taken.insert(*id));
        }
    }

    /// Checks the draft. Returns the id that each task keeps: the one that it names, else that of the task with the
    /// same title.
    pub(super) fn check(
        &self,
        current: Option<&Plan>,
        tools: &[String],
    ) -> Result<Vec<Option<TaskId>>, Vec<PlanError>> {
        let mut errors = Vec::new();
        let count = self.tasks.len();
        if count == 0 || count > MOST_TASKS {
            let detail = format!("has {count} tasks; a plan has 1 to {MOST_TASKS}");
            errors.push(PlanError::new("/tasks", detail));
        }
        for (at, task) in self.tasks.iter().enumerate().take(MOST_TASKS) {
            let place = |field: &str| format!("/tasks/{at}/{field}");
            let texts = [
                ("title", &task.title, TITLE),
                ("goal", &task.goal, GOAL),
                ("doneWhen", &task.done_when, DONE_WHEN),
            ];
            let invalid = texts.into_iter().filter_map(|(field, text, most)| {
                let detail = text_error(text, most)?;
                Some(PlanError::new(place(field), detail))
            });
            errors.extend(invalid);
            errors.extend(tool_errors(&task.tools, tools).map(|detail| PlanError::new(place("tools"), detail)));
        }
        let lists = [("assumptions", &self.assumptions), ("risks", &self.risks)];
        let listed = lists.iter().flat_map(|(name, texts)| {
            let texts = texts.iter().enumerate();
            texts.map(move |(at, text)| (format!("/{name}/{at}"), text))
        });
        let notes = [("/summary".to_owned(), &self.summary)].into_iter().chain(listed);
        errors.extend(notes.filter_map(|(place, text)| Some(PlanError::new(place, control_error(text)?))));
        let kept = self.kept(current, &mut errors);
        match errors.is_empty() {
            true => Ok(kept),
            false => Err(errors),
        }
    }

    fn kept(&self, current: Option<&Plan>, errors: &mut Vec<PlanError>) -> Vec<Option<TaskId>> {
        let known = current.map_or(&[][..], |plan| &plan.tasks);
        let mut taken = BTreeSet::new();
        for (at, id) in self
            .tasks
            .iter()
            .enumerate()
            .filter_map(|(at, task)| Some((at, task.id?)))
        {
            let invalid = match (known.iter().any(|task| task.id == id), taken.insert(id)) {
                (true, true) => continue,
                (false, _) => format!("{id} is no task of the current plan; a new task has no id"),
                (true, false) => format!("{id} is the id of an earlier task of this draft; each id is used once"),
            };
            errors.push(PlanError::new(format!("/tasks/{at}/id"), invalid));
        }
        let keeps = |task: &DraftTask| {
            task.id.or_else(|| {
                let title = task.title.trim();
                let mut same = known.iter().filter(|known| known.title == title);
                let id = same.find(|known| !taken.contains(&known.id))?.id;
                taken.insert(id);
                Some(id)
            })
        };
        self.tasks.iter().map(keeps).collect()
    }
}

pub(super) fn text_error(text: &str, most: usize) -> Option<String> {
    let length = text.trim().chars().count();
    match length {
        0 => Some("is empty; it is required".to_owned()),
        length if length > most => Some(format!("has {length} characters; at most {most} are allowed")),
        _ => control_error(text),
    }
}

/// A control character is invisible, and a database may store another one in its place: then the plan at work would not be
/// the plan that was confirmed.
fn control_error(text: &str) -> Option<String> {
    let control = text
        .chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))?;
    let code = u32::from(control);
    Some(format!(
        "contains the control character U+{code:04X}; line breaks and tabs are allowed"
    ))
}

pub(super) fn tool_errors<'a>(named: &'a [String], tools: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let none = named
        .is_empty()
        .then(|| format!("is empty; a task needs at least one of: {}", tools.join(", ")));
    let unknown = named.iter().filter(|name| !tools.contains(name));
    let unknown = unknown.map(|name| format!("{name:?} is no tool of a task; allowed: {}", tools.join(", ")));
    none.into_iter().chain(unknown)
}

/// The JSON schema of a draft, for the model: `tools` are all that a task may name, and `current` is the plan that it
/// refines.
pub fn schema(tools: &[String], current: Option<&Plan>) -> Value {
    let text = |most: usize, words: &str| json!({"type": "string", "minLength": 1, "maxLength": most, "pattern": "\\S", "description": words});
    let mut task = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["title", "goal", "doneWhen", "tools"],
        "properties": {
            "title": text(TITLE, "The task in a line."),
            "goal": text(GOAL, "What the task must reach, with all that its worker has to know."),
            "doneWhen": text(DONE_WHEN, "What can be observed, in the result of a tool, once the task is done."),
            "tools": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "string", "enum": tools},
                "description": "The tools that the task needs.",
            },
        },
    });
    let ids: Vec<_> = current
        .into_iter()
        .flat_map(|plan| &plan.tasks)
        .map(|task| task.id)
        .collect();
    if !ids.is_empty() {
        task["properties"]["id"] = json!({
            "type": "string",
            "enum": ids,
            "description": "The id of the task of the current plan that this one continues; a new task has none.",
        });
    }
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["summary", "tasks"],
        "properties": {
            "summary": {"type": "string", "minLength": 1, "maxLength": GOAL, "description": "The plan in a few sentences."},
            "tasks": {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": task},
            "assumptions": {
                "type": "array", "maxItems": MOST_TASKS, "items": {"type": "string", "maxLength": DONE_WHEN},
                "description": "What the plan takes for granted and could not be checked.",
            },
            "risks": {
                "type": "array", "maxItems": MOST_TASKS, "items": {"type": "string", "maxLength": DONE_WHEN},
                "description": "What may go wrong.",
            },
        },
    })
}
