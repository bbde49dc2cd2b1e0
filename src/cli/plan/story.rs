//! The progress of a session for a user: a line for each step and each of its phases.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::text::length;
use crate::api::planning::Session;
use crate::cli::list::{clipped, single_line};
use crate::cli::output::count;
use crate::cli::plan::text::changes;
use crate::cli::runs::{Story, newest, time};
use crate::domain::plan::Change;

/// Most characters of arguments.
const ARGUMENTS: usize = 100;
/// Most characters of what the model says, and of errors.
const WORDS: usize = 300;

/// What later lines depend on.
pub(super) struct SessionStory {
    /// The deadline, if it can be read.
    deadline: Option<DateTime<Utc>>,
    /// Titles and the most steps of the tasks that have begun, by id.
    tasks: HashMap<String, Begun>,
    /// The calls that have no result, by id: as a line shows them.
    calls: HashMap<String, String>,
    /// The calls that wait for an approval, by id.
    approvals: HashSet<String>,
    /// The calls whose outcome is unknown, by id: their tools.
    in_doubt: BTreeMap<String, String>,
    /// Does the model say what to do next, and why?
    is_reasoning: bool,
    /// The model's text in this turn.
    words: String,
    /// The step at work, as one line.
    at_work: String,
    /// The current activity.
    doing: String,
}

struct Begun {
    title: String,
    most: u64,
}

impl SessionStory {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            deadline: DateTime::from_timestamp_micros(session.deadline.0),
            tasks: HashMap::new(),
            calls: HashMap::new(),
            approvals: HashSet::new(),
            in_doubt: BTreeMap::new(),
            is_reasoning: false,
            words: String::new(),
            at_work: String::new(),
            doing: "waiting for the model".to_owned(),
        }
    }

    /// `1 h 57 min left` at the time of an event, or now.
    fn left(&self, at: Option<&str>) -> String {
        let at = at.and_then(|at| DateTime::parse_from_rfc3339(at).ok());
        let at = at.map_or_else(Utc::now, |at| at.to_utc());
        let left = self.deadline.map(|deadline| (deadline - at).num_milliseconds().max(0));
        left.map_or_else(String::new, |left| format!("{} left", length(left.unsigned_abs())))
    }

    /// The head of a step.
    fn step(&mut self, event: &Value) -> String {
        let (task, step) = (text(event, "taskId"), event["step"].as_u64().unwrap_or_default());
        let begun = self.tasks.get(task);
        let title = begun.map(|begun| clipped(&begun.title, 60)).unwrap_or_default();
        let most = begun.filter(|begun| begun.most > 0);
        let most = most.map_or_else(String::new, |begun| format!(" of at most {}", begun.most));
        self.at_work = format!("{} step {step}{most}", single_line(task));
        let left = self.left(event["at"].as_str());
        format!("{left:<16}  {:<3} {title:<60}  step {step}{most}", single_line(task))
            .trim()
            .to_owned()
    }

    fn phase(&mut self, event: &Value) -> Vec<String> {
        let phase = text(event, "phase");
        self.forget_turn();
        self.is_reasoning = phase == "reason";
        self.doing = format!("{}: waiting for the model", single_line(phase));
        match (event["again"] == true, phase) {
            (true, _) => vec![of_phase(phase, "the answer cannot be used; the model is asked again")],
            (false, "reason") => vec![self.step(event)],
            (false, _) => Vec::new(),
        }
    }

    /// The text of a turn in which the model says what to do next.
    fn turn(&mut self, event: &Value) -> Vec<String> {
        self.forget_turn();
        let is_reason = std::mem::take(&mut self.is_reasoning) && !event["taskId"].is_null();
        let reason = is_reason.then(|| of_phase("reason", &clipped(text(event, "text"), WORDS)));
        reason.into_iter().collect()
    }

    fn call(&mut self, event: &Value, is_live: bool) -> Vec<String> {
        let call = call(event);
        self.doing = clipped(&call, ARGUMENTS);
        let line = of_phase(word(event), &call);
        let again = self.calls.insert(text(event, "actionId").to_owned(), call);
        // The live line shows it until its result completes the line. After a crash the same call is sent again.
        if is_live || again.is_some() {
            Vec::new()
        } else {
            vec![line]
        }
    }

    /// What the work waits for beside approvals, once nothing else is left.
    fn waiting(&mut self, event: &Value) -> Vec<String> {
        self.doing = "waiting for a person".to_owned();
        if !event["taskId"].is_null() || !self.approvals.is_empty() {
            return Vec::new();
        }
        let tools = self.in_doubt.values();
        tools
            .map(|tool| format!("waits: {tool} may have been done; a person must settle it"))
            .collect()
    }

    fn result(&mut self, event: &Value, is_live: bool) -> Vec<String> {
        self.doing = "waiting for the model".to_owned();
        let tool = single_line(text(event, "tool"));
        let id = text(event, "actionId");
        let sent = self.calls.remove(id);
        self.approvals.remove(id);
        if event["error"]["code"] == "in_doubt" {
            self.in_doubt.insert(id.to_owned(), tool.clone());
        }
        let (name, what) = match sent {
            Some(call) if is_live => (word(event), call),
            Some(_) => ("result", tool),
            // It was not sent.
            None => (word(event), tool),
        };
        let duration = time(event["durationMs"].as_u64().unwrap_or_default());
        let outcome = match &event["error"] {
            Value::Null => {
                let exit = event["data"]["exitCode"].as_i64();
                let exit = exit.map_or_else(String::new, |code| format!("  exit {code}"));
                format!("ok  {duration}{exit}")
            }
            error => format!(
                "error  {duration}  {}: {}",
                single_line(error["toolCode"].as_str().unwrap_or(text(error, "code"))),
                clipped(text(error, "message"), WORDS)
            ),
        };
        vec![of_phase(name, &format!("{what:<60}  {outcome}"))]
    }

    fn task_ended(event: &Value) -> String {
        let steps = count(event["steps"].as_u64().unwrap_or_default(), "step");
        let why = match event["reason"].as_str() {
            None => text(event, "summary").to_owned(),
            Some(reason) => format!("{reason}: {}", text(event, "detail")),
        };
        format!(
            "{} {} after {steps}: {}",
            single_line(text(event, "taskId")),
            single_line(text(event, "status")),
            clipped(&why, WORDS)
        )
    }
}

impl Story for SessionStory {
    fn event(&mut self, event: &Value, is_live: bool) -> Vec<String> {
        match text(event, "type") {
            "delta" => {
                self.words.push_str(text(event, "text"));
                Vec::new()
            }
            "reset" => {
                self.forget_turn();
                Vec::new()
            }
            "model_fault" => {
                self.forget_turn();
                let fault = single_line(text(event, "fault"));
                vec![format!("! the model gave no usable answer: {fault}; it is asked again")]
            }
            "status" => status(event).into_iter().collect(),
            "plan" => vec![version(&event["version"])],
            "task_started" => {
                let begun = Begun {
                    title: text(event, "title").to_owned(),
                    most: event["maxSteps"].as_u64().unwrap_or_default(),
                };
                self.tasks.insert(text(event, "taskId").to_owned(), begun);
                Vec::new()
            }
            "phase" => self.phase(event),
            "turn" => self.turn(event),
            "tool_call" => self.call(event, is_live),
            "tool_result" => self.result(event, is_live),
            "reflection" => {
                self.forget_turn();
                vec![of_phase("reflect", &reflection(event))]
            }
            "approval_required" => {
                self.approvals.insert(text(event, "actionId").to_owned());
                let reason = clipped(text(event, "reason"), WORDS);
                vec![format!(
                    "waits for an approval of {}: {reason}",
                    single_line(text(event, "tool"))
                )]
            }
            "approval_resolved" => {
                self.approvals.remove(text(event, "actionId"));
                vec![resolved(event)]
            }
            "awaiting_confirmation" => self.waiting(event),
            "outcome_settled" => {
                let tool = self.in_doubt.remove(text(event, "actionId")).unwrap_or_default();
                let happened = if event["happened"] == true {
                    "it happened"
                } else {
                    "it did not happen"
                };
                vec![format!("{tool} is settled: {happened}")]
            }
            "recovered" if event["taskId"].is_null() => vec!["! another process continues the work".to_owned()],
            "task_ended" => vec![Self::task_ended(event)],
            "cleanup" => cleanup(event).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn now(&self) -> String {
        let newest = newest(&self.words);
        let doing = if newest.is_empty() { &self.doing } else { &newest };
        let parts = [self.left(None), self.at_work.clone(), doing.clone()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" · ")
    }

    fn forget_turn(&mut self) {
        self.words.clear();
    }
}

#[cfg(test)]
mod tests;

/// The width of the name of a phase.
const PHASE: usize = 8;

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

/// A line below the head of a step.
fn of_phase(phase: &str, words: &str) -> String {
    format!("  {:<PHASE$} {words}", single_line(phase))
        .trim_end()
        .to_owned()
}

/// The phase of a call; those of no task are made while a plan is made, or at the end.
fn word(event: &Value) -> &'static str {
    match event["taskId"].is_null() {
        true => "call",
        false => "act",
    }
}

/// `executeScript "make test"`: the tool with its only text, or with all arguments.
fn call(event: &Value) -> String {
    let tool = single_line(text(event, "tool"));
    let arguments = event["parameters"].as_object();
    let texts: Vec<_> = arguments
        .into_iter()
        .flatten()
        .filter(|(name, _)| matches!(name.as_str(), "script" | "command" | "query" | "url" | "path" | "title"))
        .filter_map(|(_, value)| value.as_str())
        .collect();
    let shown = match texts[..] {
        [only] => format!("\"{}\"", clipped(only, ARGUMENTS)),
        _ => clipped(&event["parameters"].to_string(), ARGUMENTS),
    };
    format!("{tool} {shown}")
}

fn status(event: &Value) -> Option<String> {
    let plan = event["planVersion"].as_u64().unwrap_or_default();
    let detail = event["detail"].as_str().map(|detail| clipped(detail, WORDS));
    match (text(event, "status"), plan, detail) {
        ("PLANNING", 0, _) => Some("a plan is being made".to_owned()),
        ("PLANNING", plan, _) => Some(format!("plan {plan} is being refined")),
        ("EXECUTING", plan, _) => Some(format!("the work on plan {plan} begins")),
        ("AWAITING_CONFIRMATION", plan, Some(detail)) => {
            Some(format!("the refinement failed, and plan {plan} remains: {detail}"))
        }
        _ => None,
    }
}

/// The changes of a version on one line, with the reason of a change by a reflection.
fn version(made: &Value) -> String {
    let known: Vec<Change> = serde_json::from_value(made["changes"].clone()).unwrap_or_default();
    let version = made["version"].as_u64().unwrap_or_default();
    let line = changes(u32::try_from(version).unwrap_or(u32::MAX), &known);
    match text(made, "kind") {
        "changed" => format!("{line}: {}", clipped(text(made, "why"), WORDS)),
        _ => line,
    }
}

fn reflection(event: &Value) -> String {
    if event["accepted"] != true {
        return format!("not accepted: {}", clipped(text(event, "error"), WORDS));
    }
    if let Some(why) = event["giveUp"].as_str() {
        return format!("gives up: {}", clipped(why, WORDS));
    }
    let summary = clipped(text(event, "summary"), WORDS);
    if event["isTaskComplete"] != true {
        return summary;
    }
    let evidence = event["evidence"].as_array().into_iter().flatten();
    let shown = evidence.map(|one| {
        let step = one["observation"].as_u64().unwrap_or_default();
        format!("step {step} shows \"{}\"", clipped(text(one, "quote"), ARGUMENTS))
    });
    let shown: Vec<_> = shown.collect();
    match shown.is_empty() {
        true => format!("complete: {summary}"),
        false => format!("complete: {}", shown.join("; ")),
    }
}

fn resolved(event: &Value) -> String {
    let tool = single_line(text(event, "tool"));
    let reason = event["reason"].as_str();
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", clipped(reason, WORDS)));
    match (event["approved"] == true, event["by"].is_null()) {
        (true, _) => format!("{tool} is approved"),
        (false, false) => format!("{tool} is rejected{reason}"),
        (false, true) => format!("the approval of {tool} expired; it was not done"),
    }
}

fn cleanup(event: &Value) -> Option<String> {
    let names = |field: &str| -> Vec<String> {
        let names = event[field].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(single_line).collect()
    };
    let (removed, left) = (names("removed"), names("left"));
    let parts = [
        (!removed.is_empty()).then(|| format!("{} removed", count(removed.len() as u64, "container"))),
        (!left.is_empty()).then(|| format!("left: {}", clipped(&left.join(", "), WORDS))),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("cleanup: {}", parts.join("; ")))
}
