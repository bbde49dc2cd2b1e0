//! What the model says about a step of a task (P-303): the arguments of the function `reflect`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::SHORTEST;
use super::plan::{DONE_WHEN, GOAL, TITLE, TaskChange};

/// The function with which the model reflects.
pub const REFLECT: &str = "reflect";
/// The longest text of a reflection, in characters.
const LONGEST: usize = GOAL;
/// The most entries of a list.
const MOST: usize = 20;

/// What the model says about a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reflection {
    /// Is the task done?
    pub is_task_complete: bool,
    /// What the step showed.
    pub summary: String,
    /// What shows that the task is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// What later steps and tasks should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learnings: Vec<String>,
    /// Changes of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_changes: Vec<TaskChange>,
    /// Why the task cannot be done; it ends then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up: Option<String>,
}

/// A place in a result that shows that the task is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The number of a step of this task.
    pub observation: u32,
    /// A text that occurs literally in the result of that step.
    pub quote: String,
}

impl Reflection {
    /// What is invalid in its form, with the places.
    pub fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut check = |place: &str, text: &str| {
            let length = text.chars().count();
            match length {
                _ if text.trim().is_empty() => errors.push(format!("/{place} is empty; it is required")),
                length if length > LONGEST => {
                    errors.push(format!(
                        "/{place} has {length} characters; at most {LONGEST} are allowed"
                    ));
                }
                _ => {}
            }
        };
        check("summary", &self.summary);
        if let Some(why) = &self.give_up {
            check("give_up", why);
        }
        for (name, count) in [
            ("evidence", self.evidence.len()),
            ("learnings", self.learnings.len()),
            ("plan_changes", self.plan_changes.len()),
        ] {
            if count > MOST {
                errors.push(format!("/{name} has {count} entries; at most {MOST} are allowed"));
            }
        }
        if self.is_task_complete && self.give_up.is_some() {
            errors.push("/give_up: a task that is complete is not given up".to_owned());
        }
        if self.is_task_complete && self.plan_changes.iter().any(TaskChange::replaces) {
            errors.push("/plan_changes: a task that is complete is not replaced".to_owned());
        }
        errors
    }

    /// The JSON schema of a reflection, for the model. `tools` are all that a task may name.
    pub fn schema(tools: &[String]) -> Value {
        let text = |most: usize, words: &str| json!({"type": "string", "minLength": 1, "maxLength": most, "description": words});
        let names = json!({"type": "array", "minItems": 1, "items": {"type": "string", "enum": tools}, "description": "The tools that the task needs."});
        json!({
            "type": "object",
            "required": ["is_task_complete", "summary"],
            "properties": {
                "is_task_complete": {"type": "boolean", "description": "True only if the result of a step shows what the task asks for."},
                "summary": text(LONGEST, "What this step showed, in one or two sentences."),
                "evidence": {
                    "type": "array", "maxItems": MOST,
                    "description": "Required if the task is complete: where it can be seen.",
                    "items": {
                        "type": "object", "required": ["observation", "quote"],
                        "properties": {
                            "observation": {"type": "integer", "minimum": 1, "description": "The number of a step of this task whose call succeeded."},
                            "quote": {"type": "string", "minLength": SHORTEST, "description": "Whole words from one text in the result of that step, copied literally."},
                        },
                    },
                },
                "learnings": {"type": "array", "maxItems": MOST, "items": text(LONGEST, "A fact that later steps or tasks should know.")},
                "plan_changes": {
                    "type": "array", "maxItems": MOST,
                    "description": "Changes of the tasks that have not begun, only where the plan no longer fits.",
                    "items": {
                        "type": "object", "required": ["op", "why"],
                        "properties": {
                            "op": {"type": "string", "enum": ["add", "modify", "obsolete"]},
                            "task": {"type": "string", "description": "modify, obsolete: the id of a task that is PENDING."},
                            "title": text(TITLE, "add, modify: the task in a line."),
                            "goal": text(GOAL, "add, modify: what it must reach, with all that its worker has to know."),
                            "doneWhen": text(DONE_WHEN, "add, modify: what can be observed once it is done."),
                            "tools": names,
                            "after": {"type": "string", "description": "add: the id of the task that it follows; without it the task comes last."},
                            "replaces": {"type": "string", "description": "add: the id of the task at work, which ends then; the new one takes its place."},
                            "why": text(DONE_WHEN, "Why."),
                        },
                    },
                },
                "give_up": text(LONGEST, "Only if the task cannot be done: why. The task ends then."),
            },
        })
    }
}
