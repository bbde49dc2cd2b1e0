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
        if is_live || again.is_some() { Vec::new() } else { vec![line] }
    }

    /// What the work waits for beside approvals, once nothing else is left.
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
