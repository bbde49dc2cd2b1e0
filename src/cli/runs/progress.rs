//! Progress for a user: lines on standard error for what happens in a run or a session, and on a terminal a live line
//! below them.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::api::planning::{Cleanup, StepReflection, Version, VersionKind};
use crate::api::spelling::camel;
use crate::cli::list::{clipped, single_line};
use crate::cli::output::{self, count, person_reads_notes, printable};
use crate::cli::plan::{changes, length, reflection};
use crate::domain::time::Timestamp;

/// The time between two updates of the live line.
const TICK: Duration = Duration::from_millis(100);
/// Most characters of arguments, results and thoughts.
const SHORT: usize = 100;
/// Most characters of what the model says, and of errors.
const WORDS: usize = 300;
/// Most characters of new text on the live line: with its prefix, it must fit 80 columns.
const NEWEST: usize = 50;
const WAITING: &str = "waiting for the model";

/// Shows progress as it happens.
pub(crate) struct Progress {
    progress: bool,
    bar: Option<ProgressBar>,
    story: Story,
}

impl Progress {
    /// Of a run, or of a session with its deadline. With `progress` false, shows no progress.
    pub(crate) fn new(progress: bool, deadline: Option<Timestamp>) -> Self {
        let mut progress = Self {
            progress,
            bar: None,
            story: Story::new(deadline),
        };
        progress.resume_output();
        progress
    }

    /// Shows the live line, again if [`Progress::end`] removed it.
    pub(crate) fn resume_output(&mut self) {
        let bar = ProgressBar::new_spinner();
        // A terminal that supports only writing (TERM=dumb) gets lines, as a file does.
        if self.progress && person_reads_notes() && !bar.is_hidden() && self.bar.is_none() {
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar.set_message(self.story.now());
            bar.enable_steady_tick(TICK);
            self.bar = Some(bar);
        }
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &Value) {
        for line in self.story.event(event) {
            self.note(&line);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.story.now());
        }
    }

    /// Shows a line.
    pub(crate) fn note(&mut self, line: &str) {
        if self.progress {
            self.warn(line);
        }
    }

    /// Shows a warning, even if progress is off.
    pub(crate) fn warn(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(printable(line)),
            None => output::note(line),
        }
    }

    /// Shows that the connection is lost.
    pub(crate) fn lost(&mut self, reason: &str) {
        self.story.forget_turn();
        self.note(&printable(&format!("! connection lost, reconnecting: {reason}")));
    }

    /// Removes the live line.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// What later lines depend on.
#[derive(Default)]
struct Story {
    /// The deadline of a session.
    deadline: Option<DateTime<Utc>>,
    /// The tasks that have begun, by id: their titles, and the most steps that they may have.
    tasks: HashMap<String, (String, u64)>,
    /// The depth of each run: 0, and one more for each level of calls.
    depths: HashMap<String, usize>,
    /// The calls so far, by id: the tool or agent, and whether it is an agent.
    calls: HashMap<String, (String, bool)>,
    /// Does the model say what to do next in a task, and why?
    is_reasoning: bool,
    /// The number of turns of all runs.
    turns: u32,
    /// The model's text in this turn.
    words: String,
    /// The model's thoughts in this turn; the turn event shows them as lines.
    thoughts: String,
    /// The step at work, if a task is.
    step: Option<String>,
    /// The current activity.
    doing: String,
    /// The text of a turn that may be the run's last: if so, it is the result and is shown as that.
    held: Option<(String, Vec<String>)>,
}

impl Story {
    fn new(deadline: Option<Timestamp>) -> Self {
        Self {
            deadline: deadline.and_then(|deadline| DateTime::from_timestamp_micros(deadline.0)),
            doing: WAITING.to_owned(),
            ..Self::default()
        }
    }

    /// The lines of an event. Those within a step of a task name its phase.
    // Longer than a screen: a table, with one branch for each type of event.
    fn event(&mut self, event: &Value) -> Vec<String> {
        // The events of a session already have names in camelCase.
        let event = &camel(event);
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let words = |field: &str| clipped(text(field), WORDS);
        let (kind, run, task, call) = (text("type"), text("runId"), text("taskId"), text("actionId"));
        match kind {
            "delta" => {
                self.words.push_str(text("text"));
                return Vec::new();
            }
            "thought" => {
                self.thoughts.push_str(text("text"));
                return Vec::new();
            }
            _ => {}
        }
        let mut lines = match self.held.take() {
            Some((said, _)) if kind == "end" && event["run"]["summary"] == said.as_str() => Vec::new(),
            Some((_, lines)) => lines,
            None => Vec::new(),
        };
        let depth = self.depths.get(run).copied().unwrap_or_default();
        let indent = "  ".repeat(depth);
        let mut say = |line: String| lines.push(format!("{indent}{}", single_line(&line)));
        let of_phase = |phase: &str, sign: &str, words: &str| match task {
            "" => format!("{sign} {words}").trim().to_owned(),
            _ => format!("  {phase:<8} {words}").trim_end().to_owned(),
        };
        match kind {
            "input" => self.doing = WAITING.to_owned(),
            "reset" => self.forget_turn(),
            "turn" => {
                self.turns += 1;
                self.forget_turn();
                self.doing = WAITING.to_owned();
                let is_reason = std::mem::take(&mut self.is_reasoning);
                if !task.is_empty() {
                    if is_reason {
                        say(of_phase("reason", "", &words("text")));
                    }
                    return lines;
                }
                for thought in event["thoughts"].as_array().into_iter().flatten() {
                    say(format!("… {}", clipped(thought.as_str().unwrap_or_default(), SHORT)));
                }
                let said = text("text").trim();
                if !said.is_empty() {
                    let shown = said.lines().map(|line| format!("{indent}  {}", printable(line)));
                    if event["calls"].as_array().is_none_or(Vec::is_empty) && depth == 0 {
                        self.held = Some((text("text").to_owned(), shown.collect()));
                    } else {
                        lines.extend(shown);
                    }
                }
            }
            "model_fault" => {
                self.forget_turn();
                say(format!("✗ the model gave no usable answer: {}", text("fault")));
            }
            "step" => {
                let number = event["step"].as_u64().unwrap_or_default() + 1;
                let round = event["round"].as_u64().filter(|round| *round > 1);
                let round = round.map(|round| format!(", round {round}"));
                say(format!("step {number}{}: {}", round.unwrap_or_default(), text("agent")));
            }
            "task_started" => {
                let most = event["maxSteps"].as_u64().unwrap_or_default();
                self.tasks.insert(task.to_owned(), (text("title").to_owned(), most));
            }
            "phase" => {
                let phase = text("phase");
                self.forget_turn();
                self.is_reasoning = phase == "reason";
                self.doing = format!("{phase}: {WAITING}");
                let again = "the answer cannot be used; the model is asked again";
                match event["again"] == true {
                    true => say(of_phase(phase, "!", again)),
                    false if self.is_reasoning && !task.is_empty() => say(self.begin_step(event, task)),
                    false => {}
                }
            }
            "tool_call" | "agent_call" => {
                let (is_agent, arguments) = (kind == "agent_call", arguments(&event["parameters"]));
                let (tool, word) = match is_agent {
                    true => (text("agent"), "agent "),
                    false => (text("tool"), ""),
                };
                say(of_phase("act", "→", &format!("{word}{tool} {arguments}")));
                self.doing = single_line(&format!("{tool} {arguments}"));
                if is_agent {
                    self.depths.insert(text("childRunId").to_owned(), depth + 1);
                }
                self.calls.insert(call.to_owned(), (tool.to_owned(), is_agent));
            }
            "tool_result" => {
                let of_agent = self.calls.get(call).is_some_and(|(_, is_agent)| *is_agent);
                say(of_phase("result", "", &result(event, of_agent)));
                self.doing = WAITING.to_owned();
            }
            "reflection" => {
                let made: Option<StepReflection> = serde_json::from_value(event.clone()).ok();
                let made = made.filter(|_| event["accepted"] == true);
                let parts = made.map(|made| reflection(&made, SHORT));
                let shown = parts.map(|parts| {
                    parts
                        .iter()
                        .map(|part| clipped(part, WORDS))
                        .collect::<Vec<_>>()
                        .join("; ")
                });
                let shown = shown.unwrap_or_else(|| format!("not accepted: {}", words("error")));
                say(of_phase("reflect", "reflect", &shown));
            }
            "notice" => {
                let reason = event["reason"].as_str().map(|reason| format!("{reason}: "));
                say(format!("! {}{}", reason.unwrap_or_default(), words("text")));
            }
            "approval_required" => say(format!(
                "waits for an approval of {}: {}",
                text("tool"),
                words("reason")
            )),
            "approval_resolved" => say(resolved(event)),
            "awaiting_confirmation" => self.doing = "waiting for a person".to_owned(),
            "outcome_settled" => {
                let tool = self.calls.get(call).map_or("an action", |(tool, _)| tool);
                let did = if event["happened"] == true {
                    "happened"
                } else {
                    "did not happen"
                };
                say(format!("{tool} is settled: it {did}"));
            }
            "recovered" if task.is_empty() => say("! another process continues the work".to_owned()),
            "resumed" => say("resumed".to_owned()),
            "status" => status(event).into_iter().for_each(say),
            "plan" => version(event).into_iter().for_each(say),
            "task_ended" => {
                let steps = count(event["steps"].as_u64().unwrap_or_default(), "step");
                let why = match event["reason"].as_str() {
                    None => words("summary"),
                    Some(reason) => format!("{reason}: {}", words("detail")),
                };
                say(format!("{task} {} after {steps}: {why}", text("status")));
            }
            "cleanup" => cleanup(event).into_iter().for_each(say),
            _ => {}
        }
        lines
    }

    /// The head of a step, with the time left at its begin.
    fn begin_step(&mut self, event: &Value, task: &str) -> String {
        let (title, most) = self.tasks.get(task).cloned().unwrap_or_default();
        let most = if most > 0 {
            format!(" of at most {most}")
        } else {
            String::new()
        };
        let step = format!("step {}{most}", event["step"]);
        let left = self.left(event["at"].as_str()).unwrap_or_default();
        self.step = Some(single_line(&format!("{task} {step}")));
        let head = format!("{left:<16}  {task:<3} {:<60}  {step}", clipped(&title, 60));
        head.trim().to_owned()
    }

    /// `1 h 57 min left` in a session, at the time of an event, or now.
    fn left(&self, at: Option<&str>) -> Option<String> {
        let at = at.and_then(|at| DateTime::parse_from_rfc3339(at).ok());
        let at = at.map_or_else(Utc::now, |at| at.to_utc());
        let left = (self.deadline? - at).num_milliseconds().max(0);
        Some(format!("{} left", length(left.unsigned_abs())))
    }

    /// Clears the text of a turn that is complete or void.
    fn forget_turn(&mut self) {
        self.words.clear();
        self.thoughts.clear();
    }

    /// The current activity, as one line.
    fn now(&self) -> String {
        let (mark, shown) = match self.words.trim().is_empty() && !self.thoughts.trim().is_empty() {
            true => ("… ", &self.thoughts),
            false => ("", &self.words),
        };
        let doing = match newest(shown) {
            newest if newest.is_empty() => clipped(&self.doing, SHORT),
            newest => format!("{mark}{newest}"),
        };
        // Turns of called agents count here too, so they are not steps of this run.
        let at_work = self.step.clone();
        let at_work = at_work.unwrap_or_else(|| format!("model call {}", self.turns + 1));
        let parts = [self.left(None), Some(at_work), Some(doing)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }
}

/// The newest text on one line: the terminal has room only for the end of a long answer.
fn newest(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let words = words.join(" ");
    let skipped = words.chars().count().saturating_sub(NEWEST);
    printable(&words.chars().skip(skipped).collect::<String>())
}

/// The only text that says what a call is about, such as a script, or else all arguments.
fn arguments(parameters: &Value) -> String {
    let is_subject = |name: &str| matches!(name, "script" | "command" | "query" | "url" | "path" | "title");
    let members = parameters.as_object().into_iter().flatten();
    let subjects = members.filter(|(name, _)| is_subject(name));
    let texts: Vec<_> = subjects.filter_map(|(_, value)| value.as_str()).collect();
    match texts[..] {
        [only] => format!("\"{}\"", clipped(only, SHORT)),
        _ => short(parameters),
    }
}

/// `✓ executeScript (1.2 s) {"exitCode":0}`.
fn result(event: &Value, of_agent: bool) -> String {
    let (data, error) = (&event["data"], &event["error"]);
    let (sign, shown) = match error.is_null() {
        // The agent's output only; the other data is internal to the caller's run.
        true if of_agent && !data["output"].is_null() => ("✓", short(&data["output"])),
        true => ("✓", short(data)),
        false => {
            let code = error["toolCode"].as_str().or(error["code"].as_str());
            let message = clipped(error["message"].as_str().unwrap_or_default(), WORDS);
            ("✗", format!("{}: {message}", code.unwrap_or_default()))
        }
    };
    let tool = event["tool"].as_str().unwrap_or_default();
    let time = time(event["durationMs"].as_u64().unwrap_or_default());
    format!("{sign} {tool} ({time}) {shown}")
}

fn resolved(event: &Value) -> String {
    let tool = event["tool"].as_str().unwrap_or_default();
    let reason = event["reason"].as_str();
    let reason = reason.map_or_else(String::new, |reason| format!(": {}", clipped(reason, WORDS)));
    match (event["approved"] == true, event["by"].is_null()) {
        (true, _) => format!("{tool} is approved"),
        (false, false) => format!("{tool} is rejected{reason}"),
        (false, true) => format!("the approval of {tool} expired; it was not done"),
    }
}

fn status(event: &Value) -> Option<String> {
    let plan = event["planVersion"].as_u64().unwrap_or_default();
    let detail = event["detail"].as_str().map(|detail| clipped(detail, WORDS));
    match (event["status"].as_str()?, plan, detail) {
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
fn version(event: &Value) -> Option<String> {
    let made: Version = serde_json::from_value(event["version"].clone()).ok()?;
    let line = changes(made.version, &made.changes);
    Some(match made.kind {
        VersionKind::Changed => format!("{line}: {}", clipped(&made.why, WORDS)),
        _ => line,
    })
}

fn cleanup(event: &Value) -> Option<String> {
    let Cleanup { removed, left } = serde_json::from_value(event.clone()).ok()?;
    let left = if left.is_empty() {
        String::new()
    } else {
        format!("; left: {}", clipped(&left.join(", "), WORDS))
    };
    let containers = count(removed.len() as u64, "container");
    (!removed.is_empty() || !left.is_empty()).then(|| format!("cleanup: {containers} removed{left}"))
}

/// Arguments and results, clipped for one line.
fn short(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => clipped(text, SHORT),
        other => clipped(&other.to_string(), SHORT),
    }
}

/// 12 ms, 1.2 s.
pub(crate) fn time(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        _ => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn a_called_agent_is_shown_indented_under_its_caller() {
        let mut story = Story::new(None);
        let lines: Vec<String> = [
            json!({"type": "turn", "run_id": "a", "text": "Let me see.", "thoughts": ["hm\nhm"], "calls": [{}]}),
            json!({"type": "agent_call", "run_id": "a", "agent": "helper", "parameters": {"query": "x"}, "child_run_id": "b"}),
            json!({"type": "turn", "run_id": "b", "text": "", "thoughts": [], "calls": [{}]}),
            json!({"type": "tool_call", "run_id": "b", "tool": "grep", "parameters": {"p": "\u{1b}[2J"}}),
            json!({"type": "tool_result", "run_id": "b", "tool": "grep", "data": null, "error": {"code": "tool_error", "message": "no"}, "duration_ms": 3}),
            json!({"type": "turn", "run_id": "b", "text": "Found\nnothing.", "thoughts": [], "calls": []}),
            json!({"type": "tool_result", "run_id": "a", "tool": "helper", "data": "Found nothing.", "error": null, "duration_ms": 1234}),
            json!({"type": "notice", "run_id": "a", "reason": "step_limit", "text": "The step limit is exceeded."}),
        ]
        .iter()
        .flat_map(|event| story.event(event))
        .collect();
        assert_eq!(
            lines.join("\n"),
            "… hm hm\n  Let me see.\n→ agent helper \"x\"\n  → grep {\"p\":\"\\u001b[2J\"}\n  ✗ grep (3 ms) tool_error: no\n    \
             Found\n    nothing.\n✓ helper (1.2 s) Found nothing.\n! step_limit: The step limit is exceeded."
        );
    }

    #[test]
    fn the_last_words_of_a_run_are_its_result_and_not_shown_twice() {
        let turn = json!({"type": "turn", "run_id": "a", "text": "Done.", "thoughts": [], "calls": []});
        let end = json!({"type": "end", "run_id": "a", "run": {"summary": "Done."}});
        let notice = json!({"type": "notice", "run_id": "a", "reason": null, "text": "Hand it in."});
        let mut story = Story::new(None);
        assert_eq!(story.event(&turn), [""; 0]);
        assert_eq!(story.event(&end), [""; 0]);
        let mut story = Story::new(None);
        story.event(&turn);
        assert_eq!(story.event(&notice), ["  Done.", "! Hand it in."]);
    }

    #[test]
    fn the_line_that_lives_shows_the_newest_words_on_one_line() {
        let mut story = Story::new(None);
        story.event(&json!({"type": "input", "run_id": "a", "text": "x"}));
        assert_eq!(story.now(), "model call 1 · waiting for the model");
        // Thoughts only until the answer begins; the turn event shows them as a line, once.
        let thought = json!({"type": "thought", "run_id": "a", "text": "The user\nasks"});
        assert_eq!(story.event(&thought), [""; 0]);
        assert_eq!(story.now(), "model call 1 · … The user asks");
        let text = format!("{} the\nend", "x".repeat(200));
        story.event(&json!({"type": "delta", "run_id": "a", "text": text}));
        assert_eq!(story.now(), format!("model call 1 · {} the end", "x".repeat(42)));
        story.event(&json!({"type": "reset", "run_id": "a"}));
        assert_eq!(story.now(), "model call 1 · waiting for the model");
    }

    #[test]
    fn of_a_step_its_agent_and_its_output_are_shown() {
        let mut story = Story::new(None);
        let step = |round: u32| json!({"type": "step", "run_id": "a", "step": 0, "round": round, "agent": "helper"});
        let call = json!({"type": "agent_call", "run_id": "a", "action_id": "c", "agent": "helper", "parameters": {}, "child_run_id": "b"});
        let data = json!({"output": "Found.", "exits_loop": false, "steps": 2, "tokens": 9});
        let done = json!({"type": "tool_result", "run_id": "a", "action_id": "c", "tool": "helper", "data": data, "error": null, "duration_ms": 3});
        let lines: Vec<_> = [step(1), call, done.clone(), step(2)]
            .iter()
            .flat_map(|event| story.event(event))
            .collect();
        assert_eq!(
            lines,
            [
                "step 1: helper",
                "→ agent helper {}",
                "✓ helper (3 ms) Found.",
                "step 1, round 2: helper"
            ]
        );
        // For a tool, all data is shown.
        assert!(Story::new(None).event(&done)[0].contains("exits_loop"));
    }

    /// Of a session.
    fn session() -> Story {
        let deadline: DateTime<Utc> = "2026-11-22T12:00:00Z".parse().unwrap();
        Story::new(Some(Timestamp(deadline.timestamp_micros())))
    }

    /// Two steps of a task, with all phases.
    fn events() -> Vec<Value> {
        let call = |step: u32, id: &str, script: &str| json!({"type": "tool_call", "taskId": "t1", "step": step, "actionId": id, "tool": "executeScript", "parameters": {"containerId": "c", "script": script}});
        vec![
            json!({"type": "status", "status": "EXECUTING", "planVersion": 2, "detail": null, "runId": "a"}),
            json!({"type": "task_started", "taskId": "t1", "title": "Run the tests", "runId": "b", "maxSteps": 25}),
            json!({"type": "phase", "at": "2026-11-22T10:03:00Z", "taskId": "t1", "step": 1, "phase": "reason", "again": false}),
            json!({"type": "delta", "taskId": "t1", "text": "First "}),
            json!({"type": "turn", "taskId": "t1", "step": 1, "text": "First\nrun them.", "calls": []}),
            json!({"type": "phase", "taskId": "t1", "step": 1, "phase": "act", "again": false}),
            call(1, "x", "make \u{1b}[2J test"),
            json!({"type": "tool_result", "taskId": "t1", "step": 1, "actionId": "x", "tool": "executeScript", "success": true, "data": {"exitCode": 0}, "error": null, "durationMs": 41_200}),
            json!({"type": "phase", "taskId": "t1", "step": 1, "phase": "reflect", "again": false}),
            json!({"type": "reflection", "taskId": "t1", "step": 1, "accepted": false, "error": "no step shows \"119 passed\"", "isTaskComplete": true, "summary": "Done.", "evidence": [], "learnings": [], "planChanges": [], "giveUp": null}),
            json!({"type": "reflection", "taskId": "t1", "step": 1, "accepted": true, "error": null, "isTaskComplete": true, "summary": "Done.", "evidence": [{"observation": 1, "quote": "118 passed"}], "learnings": [], "planChanges": [], "giveUp": null}),
            json!({"type": "task_ended", "taskId": "t1", "status": "COMPLETED", "reason": null, "detail": "", "summary": "All pass.", "steps": 1}),
        ]
    }

    fn lines(story: &mut Story, events: &[Value]) -> Vec<String> {
        events.iter().flat_map(|event| story.event(event)).collect()
    }

    /// P-303: each step has its time left and its number, and each phase a line.
    #[test]
    fn a_step_shows_its_phases_and_the_time_left() {
        assert_eq!(
            lines(&mut session(), &events()),
            [
                "the work on plan 2 begins",
                "1 h 57 min left   t1  Run the tests                                                 step 1 of at most 25",
                "  reason   First run them.",
                "  act      executeScript \"make \\u001b[2J test\"",
                "  result   ✓ executeScript (41.2 s) {\"exitCode\":0}",
                "  reflect  not accepted: no step shows \"119 passed\"",
                "  reflect  complete: Done.; step 1 shows \"118 passed\"",
                "t1 COMPLETED after 1 step: All pass.",
            ]
        );
    }

    #[test]
    fn the_line_that_lives_shows_the_step_and_what_is_under_way() {
        let mut story = session();
        let all = events();
        for (count, end) in [
            (3, "left · t1 step 1 of at most 25 · reason: waiting for the model"),
            (4, "· First"),
            (7, "· executeScript \"make \\u001b[2J test\""),
        ] {
            story = session();
            lines(&mut story, &all[..count]);
            assert!(story.now().ends_with(end), "{}", story.now());
        }
        assert_eq!(story.now().lines().count(), 1);
    }

    /// P-304, P-306: what changes the plan, what a person must decide, and what is left at the end.
    #[test]
    fn changes_waits_failures_and_the_cleanup_have_a_line_each() {
        let change = json!({"op": "add", "task": "t5", "title": "Pin the\nversion"});
        let plan: Version =
            sample(json!({"version": 3, "kind": "changed", "changes": [change], "why": "main does not build"}));
        let lost = json!({"code": "in_doubt", "message": "no answer"});
        let failed = json!({"code": "tool_error", "toolCode": "rejected", "message": "not now"});
        let all = [
            json!({"type": "plan", "taskId": null, "version": plan}),
            json!({"type": "approval_required", "taskId": "t1", "actionId": "x", "tool": "closeIssue", "parameters": {}, "reason": "the operator requires it"}),
            json!({"type": "awaiting_confirmation", "taskId": "t1"}),
            json!({"type": "approval_resolved", "taskId": "t1", "approved": false, "by": "ann", "tool": "closeIssue", "actionId": "x", "reason": "not now"}),
            json!({"type": "tool_call", "taskId": "t1", "actionId": "y", "tool": "createIssue", "parameters": {}}),
            json!({"type": "tool_result", "taskId": "t1", "actionId": "y", "tool": "createIssue", "data": null, "error": lost, "durationMs": 0}),
            json!({"type": "outcome_settled", "taskId": "t1", "actionId": "y", "happened": true, "by": "ann"}),
            json!({"type": "recovered", "taskId": "t1"}),
            json!({"type": "recovered", "taskId": null}),
            json!({"type": "tool_result", "taskId": "t1", "actionId": "x", "tool": "closeIssue", "data": null, "error": failed, "durationMs": 0}),
            json!({"type": "phase", "taskId": "t1", "step": 2, "phase": "act", "again": true}),
            json!({"type": "model_fault", "taskId": "t1", "fault": "unavailable"}),
            json!({"type": "reset", "taskId": "t1"}),
            json!({"type": "task_ended", "taskId": "t1", "status": "FAILED", "reason": "gave_up", "detail": "no access", "summary": "", "steps": 2}),
            json!({"type": "status", "status": "AWAITING_CONFIRMATION", "planVersion": 3, "detail": "the model was blocked"}),
            json!({"type": "cleanup", "removed": ["c1"], "left": ["c2"]}),
            json!({"type": "cleanup", "removed": [], "left": []}),
            json!({"type": "of_a_later_gavel"}),
        ];
        assert_eq!(
            lines(&mut session(), &all),
            [
                "Plan 3   + t5 Pin the version: main does not build",
                "waits for an approval of closeIssue: the operator requires it",
                "closeIssue is rejected: not now",
                "  act      createIssue {}",
                "  result   ✗ createIssue (0 ms) in_doubt: no answer",
                "createIssue is settled: it happened",
                "! another process continues the work",
                "  result   ✗ closeIssue (0 ms) rejected: not now",
                "  act      the answer cannot be used; the model is asked again",
                "✗ the model gave no usable answer: unavailable",
                "t1 FAILED after 2 steps: gave_up: no access",
                "the refinement failed, and plan 3 remains: the model was blocked",
                "cleanup: 1 container removed; left: c2",
            ]
        );
    }
}
