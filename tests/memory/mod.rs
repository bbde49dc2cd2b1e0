//! A task list in memory and a minimal loop around a model, for development.
#![allow(dead_code, clippy::unwrap_used)]

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use gavel::domain::canonical;
use gavel::domain::journal::{CallFailure, Speaker};
use gavel::domain::tool::FailureCode;
use gavel::ports::model::{
    CallMode, Content, Declaration, FunctionResponse, Functions, Model, ModelRequest, ModelSettings,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The date of every conversation: a Friday.
pub(crate) const TODAY: &str = "Today is Friday, 2026-11-20 (time zone UTC; that of the user is not known).";

#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) due: Option<String>,
    pub(crate) priority: String,
    pub(crate) notes: Option<String>,
    pub(crate) done: bool,
}

/// The list, and the faults of its tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) tasks: Vec<Task>,
    pub(crate) made: usize,
    pub(crate) failing: Vec<String>,
    pub(crate) hidden: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ended {
    Words,
    Asked(String),
    Refused(String),
    Spent,
    Fault,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) success: bool,
    pub(crate) ran: bool,
}

/// The result of a message.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) words: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) ended: Ended,
    pub(crate) turns: u32,
}

impl Said {
    /// Names of the calls, without verdicts.
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls.iter().map(|call| call.name.clone()).collect()
    }
}

impl Memory {
    pub(crate) fn of(descriptions: &[&str]) -> Self {
        let mut memory = Self::default();
        for description in descriptions {
            memory.run("add_task", &json!({"description": description})).unwrap();
        }
        memory
    }

    pub(crate) fn run(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        if self.failing.iter().any(|failing| failing == name) {
            return Err("the task list is broken".to_owned());
        }
        let text = |name: &str| arguments[name].as_str().map(str::to_owned);
        match name {
            "add_task" => {
                let description = text("description")
                    .filter(|words| !words.trim().is_empty())
                    .ok_or("`description` is missing")?;
                self.made += 1;
                let priority = text("priority").unwrap_or_else(|| "normal".to_owned());
                let id = format!("t{}", self.made);
                let task = Task {
                    id,
                    description,
                    due: text("due"),
                    priority,
                    notes: text("notes"),
                    done: false,
                };
                self.tasks.push(task.clone());
                Ok(json!({"task": shown(&task)}))
            }
            "list_tasks" => {
                let status = text("status").unwrap_or_else(|| "open".to_owned());
                let wanted = |task: &&Task| match status.as_str() {
                    "done" => task.done,
                    "all" => true,
                    _ => !task.done,
                };
                let mut tasks: Vec<_> = self.tasks.iter().filter(wanted).collect();
                // Earliest due first, then oldest first, as the task server lists them.
                tasks.sort_by_key(|task| (task.due.is_none(), task.due.clone()));
                let tasks: Vec<_> = tasks.into_iter().map(shown).collect();
                Ok(json!({"total": tasks.len(), "tasks": tasks}))
            }
            "complete_task" => self
                .on(arguments, |task| task.done = true)
                .map(|task| json!({"task": shown(&task)})),
            "update_task" => {
                let changed = self.on(arguments, |task| {
                    task.description = text("description").unwrap_or_else(|| task.description.clone());
                    task.due = text("due").or(task.due.take());
                    task.notes = text("notes").or(task.notes.take());
                    task.priority = text("priority").unwrap_or_else(|| task.priority.clone());
                });
                changed.map(|task| json!({"task": shown(&task)}))
            }
            "delete_task" => {
                let task = self.on(arguments, |_| {})?;
                self.tasks.retain(|other| other.id != task.id);
                Ok(json!({"deleted": shown(&task)}))
            }
            _ => Err(format!("there is no function {name:?}")),
        }
    }

    fn on(&mut self, arguments: &Value, change: impl FnOnce(&mut Task)) -> Result<Task, String> {
        let id = arguments["id"].as_str().ok_or("`id` is missing")?;
        let task = self
            .tasks
            .iter_mut()
            .find(|task| task.id == id)
            .ok_or("there is no such task")?;
        change(task);
        Ok(task.clone())
    }
}

fn shown(task: &Task) -> Value {
    let status = if task.done { "done" } else { "open" };
    let mut value =
        json!({"id": task.id, "description": task.description, "status": status, "priority": task.priority});
    if let Some(due) = &task.due {
        value["due"] = json!(due);
    }
    value
}

const TOOLS: [(&str, &str); 5] = [
    (
        "add_task",
        r#"{"type":"object","properties":{"description":{"type":"string"},"due":{"type":"string"},"priority":{"type":"string","enum":["low","normal","high"]},"notes":{"type":"string"}},"required":["description"]}"#,
    ),
    (
        "list_tasks",
        r#"{"type":"object","properties":{"status":{"type":"string","enum":["open","done","all"]},"query":{"type":"string"}}}"#,
    ),
    (
        "update_task",
        r#"{"type":"object","properties":{"id":{"type":"string"},"description":{"type":"string"},"due":{"type":["string","null"]},"priority":{"type":"string"}},"required":["id"]}"#,
    ),
    (
        "complete_task",
        r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}"#,
    ),
    (
        "delete_task",
        r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}"#,
    ),
];

const VERDICTS: [(&str, &str); 2] = [
    (
        "request_clarification",
        r#"{"type":"object","properties":{"question":{"type":"string"},"kind":{"type":"string","enum":["UNCLEAR_INTENT","MULTIPLE_MATCHES"]}},"required":["question","kind"]}"#,
    ),
    (
        "refuse",
        r#"{"type":"object","properties":{"message":{"type":"string"},"kind":{"type":"string","enum":["OUT_OF_SCOPE","MISSING_PERMISSION"]}},"required":["message","kind"]}"#,
    ),
];

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// The five tools and two verdicts, except the hidden ones.
pub(crate) fn offered(hidden: &[String]) -> Arc<Functions> {
    let known = TOOLS
        .iter()
        .chain(&VERDICTS)
        .filter(|(name, _)| !hidden.iter().any(|hidden| hidden == name));
    let declarations = known
        .map(|(name, schema)| Declaration {
            name: (*name).to_owned(),
            description: String::new(),
            parameters: raw(schema),
        })
        .collect();
    Arc::new(Functions {
        declarations,
        encoded: OnceLock::new(),
    })
}

/// History and message, with the date above the message. Leaks its texts, because tests are short.
pub(crate) fn contents(history: &[(Speaker, &str)], message: &str) -> Vec<Content<'static>> {
    let said = history
        .iter()
        .map(|(speaker, text)| Content::Text(*speaker, (*text).to_owned().leak()));
    let last = format!("{TODAY}\n\n{message}").leak();
    said.chain([Content::Text(Speaker::User, last)]).collect()
}

pub(crate) fn request<'a>(
    functions: &'a Arc<Functions>,
    contents: &'a [Content<'a>],
    mode: &'a CallMode,
) -> ModelRequest<'a> {
    static SETTINGS: OnceLock<ModelSettings> = OnceLock::new();
    let settings = SETTINGS.get_or_init(ModelSettings::default);
    ModelRequest {
        settings,
        system: "",
        functions,
        contents,
        mode,
        holder: ("t", "u"),
        thoughts: false,
        deadline: Instant::now() + Duration::from_secs(30),
    }
}

/// Gavel's own models never wait, so their futures are ready at once.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a model without I/O waited"),
    }
}

enum Entry {
    Turn(Arc<RawValue>),
    Answers(Vec<(String, Result<Box<RawValue>, CallFailure>)>),
}

/// At most five turns; a verdict alone or text ends the conversation, calls are answered.
pub(crate) fn converse(model: &dyn Model, memory: &mut Memory, history: &[(Speaker, &str)], message: &str) -> Said {
    let functions = offered(&memory.hidden);
    let opening = contents(history, message);
    let mut journal = Vec::new();
    let mut calls = Vec::new();
    for turns in 1..=5 {
        let answers: Vec<Vec<FunctionResponse<'_>>> = journal.iter().map(answers).collect();
        let mut contents = opening.clone();
        for (entry, answers) in journal.iter().zip(&answers) {
            contents.push(match entry {
                Entry::Turn(turn) => Content::Turn(turn, None),
                Entry::Answers(_) => Content::Responses(answers),
            });
        }
        let Ok(turn) = wait(model.generate(request(&functions, &contents, &CallMode::Auto), None)) else {
            return Said {
                words: "fault".to_owned(),
                calls,
                ended: Ended::Fault,
                turns,
            };
        };
        let proposed: Vec<_> = turn
            .calls()
            .map(|call| {
                (
                    call.name.clone(),
                    serde_json::from_str::<Value>(call.args.get()).unwrap_or_default(),
                )
            })
            .collect();
        if let [(name, arguments)] = proposed.as_slice() {
            let kind = arguments["kind"].as_str().unwrap_or_default().to_owned();
            let words = |field: &str| arguments[field].as_str().unwrap_or_default().to_owned();
            match name.as_str() {
                "request_clarification" => {
                    return Said {
                        words: words("question"),
                        calls,
                        ended: Ended::Asked(kind),
                        turns,
                    };
                }
                "refuse" => {
                    return Said {
                        words: words("message"),
                        calls,
                        ended: Ended::Refused(kind),
                        turns,
                    };
                }
                _ => {}
            }
        }
        if proposed.is_empty() {
            return Said {
                words: turn.text(),
                calls,
                ended: Ended::Words,
                turns,
            };
        }
        let mut answers = Vec::new();
        for (name, arguments) in proposed {
            let ran = TOOLS.iter().any(|(tool, _)| *tool == name);
            let outcome = memory.run(&name, &arguments);
            calls.push(Call {
                name: name.clone(),
                arguments,
                success: outcome.is_ok(),
                ran,
            });
            let failure = |message| CallFailure::new(FailureCode::ToolError, message);
            answers.push((name, outcome.map(|data| canonical::to_raw(&data)).map_err(failure)));
        }
        journal.push(Entry::Turn(turn.content));
        journal.push(Entry::Answers(answers));
    }
    Said {
        words: "spent".to_owned(),
        calls,
        ended: Ended::Spent,
        turns: 5,
    }
}

fn answers(entry: &Entry) -> Vec<FunctionResponse<'_>> {
    let Entry::Answers(answers) = entry else {
        return Vec::new();
    };
    answers
        .iter()
        .map(|(name, outcome)| FunctionResponse {
            id: None,
            name,
            outcome: outcome.as_ref().map(|data| &**data),
        })
        .collect()
}
