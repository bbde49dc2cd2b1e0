//! A run's progress for a user: lines on standard error, and on a terminal a live line below them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::cli::list::clipped;
use crate::cli::output::{self, person_reads_notes, printable};

/// The time between two updates of the live line.
const TICK: Duration = Duration::from_millis(100);
/// Most characters of arguments, results and thoughts.
const SHORT: usize = 100;
/// Most characters of new text on the live line: with its prefix, it must fit 80 columns.
const NEWEST: usize = 50;

/// Turns events into what a user reads.
pub(crate) trait Story {
    /// The lines of an event. `is_live`: a live line below them shows what is under way.
    fn event(&mut self, event: &Value, is_live: bool) -> Vec<String>;

    /// The current activity, as one line.
    fn now(&self) -> String;

    /// Clears the text of a turn that is complete or void.
    fn forget_turn(&mut self);
}

/// Shows progress as it happens.
pub(crate) struct Progress {
    progress: bool,
    bar: Option<ProgressBar>,
    story: Box<dyn Story>,
}

impl Progress {
    /// Of a run. With `progress` false, shows no progress.
    pub(crate) fn new(progress: bool) -> Self {
        Self::of(progress, Box::new(RunStory::default()))
    }

    /// Of this story.
    pub(crate) fn of(progress: bool, story: Box<dyn Story>) -> Self {
        let mut progress = Self {
            progress,
            bar: None,
            story,
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
        for line in self.story.event(event, self.bar.is_some()) {
            self.note(&line);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.story.now());
        }
    }

    /// Shows a line.
    pub(crate) fn note(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(printable(line)),
            None if self.progress => output::note(line),
            None => {}
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

/// The state of the story that later lines depend on.
#[derive(Default)]
struct RunStory {
    /// The depth of each run: 0, and one more for each level of calls.
    depths: HashMap<String, usize>,
    /// Agent calls in progress: the caller's run, and the call's sequence number.
    agents: HashSet<(String, Option<u64>)>,
    /// The number of turns of all runs.
    turns: u32,
    /// The model's text in this turn.
    words: String,
    /// The model's thoughts in this turn; the turn event shows them as lines.
    thoughts: String,
    /// The current activity.
    doing: String,
    /// The text of a turn that may be the run's last: if so, it is the result and is shown as that.
    held: Option<(String, Vec<String>)>,
}

impl Story for RunStory {
    // Longer than a screen: a table, with one branch for each type of event.
    fn event(&mut self, event: &Value, _is_live: bool) -> Vec<String> {
        let text = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, run) = (text("type"), text("run_id"));
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
        let mut say = |line: String| lines.push(format!("{indent}{}", printable(&line)));
        match kind {
            "input" => self.doing = "waiting for the model".to_owned(),
            "reset" => self.forget_turn(),
            "turn" => {
                self.turns += 1;
                self.forget_turn();
                self.doing = "waiting for the model".to_owned();
                for thought in event["thoughts"].as_array().into_iter().flatten() {
                    say(format!("… {}", clipped(thought.as_str().unwrap_or_default(), SHORT)));
                }
                let words = text("text");
                if !words.trim().is_empty() {
                    let is_last = event["calls"].as_array().is_none_or(Vec::is_empty) && depth == 0;
                    let said = words
                        .trim()
                        .lines()
                        .map(|line| format!("{indent}  {}", printable(line)));
                    if is_last {
                        self.held = Some((words.to_owned(), said.collect()));
                    } else {
                        lines.extend(said);
                    }
                }
            }
            "model_fault" => say(format!("✗ the model gave no usable answer: {}", text("fault"))),
            "step" => {
                let number = event["step"].as_u64().unwrap_or_default() + 1;
                let round = event["round"].as_u64().filter(|round| *round > 1);
                let round = round.map(|round| format!(", round {round}"));
                say(format!("step {number}{}: {}", round.unwrap_or_default(), text("agent")));
            }
            "tool_call" => {
                say(format!("→ {} {}", text("tool"), short(&event["parameters"])));
                self.doing = printable(text("tool"));
            }
            "agent_call" => {
                say(format!("→ agent {} {}", text("agent"), short(&event["parameters"])));
                self.doing = printable(text("agent"));
                self.depths.insert(text("child_run_id").to_owned(), depth + 1);
                self.agents.insert((run.to_owned(), event["sequence"].as_u64()));
            }
            "tool_result" => {
                let of_agent = self.agents.remove(&(run.to_owned(), event["sequence"].as_u64()));
                say(result(event, of_agent));
                self.doing = "waiting for the model".to_owned();
            }
            "reflection" => say(match event["accepted"] == true {
                true => format!("✓ reflect {}", clipped(text("summary"), SHORT)),
                false => format!("✗ reflect {}", clipped(text("error"), 2 * SHORT)),
            }),
            "notice" => {
                let reason = event["reason"].as_str().map(|reason| format!("{reason}: "));
                say(format!(
                    "! {}{}",
                    reason.unwrap_or_default(),
                    clipped(text("text"), 2 * SHORT)
                ));
            }
            "recovered" => say("! another process continues the run".to_owned()),
            "resumed" => say("resumed".to_owned()),
            _ => {}
        }
        lines
    }

    fn forget_turn(&mut self) {
        self.words.clear();
        self.thoughts.clear();
    }

    fn now(&self) -> String {
        let (mark, shown) = match self.words.trim().is_empty() && !self.thoughts.trim().is_empty() {
            true => ("… ", &self.thoughts),
            false => ("", &self.words),
        };
        let newest = newest(shown);
        let doing = if newest.is_empty() {
            self.doing.clone()
        } else {
            format!("{mark}{newest}")
        };
        // Turns of called agents count here too, so they are not steps of this run.
        format!("model call {}: {doing}", self.turns + 1)
    }
}

/// The newest text on one line: the terminal has room only for the end of a long answer.
pub(crate) fn newest(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let words = words.join(" ");
    let skipped = words.chars().count().saturating_sub(NEWEST);
    printable(&words.chars().skip(skipped).collect::<String>())
}

fn result(event: &Value, of_agent: bool) -> String {
    let tool = event["tool"].as_str().unwrap_or_default();
    let time = self::time(event["duration_ms"].as_u64().unwrap_or_default());
    match &event["error"] {
        // The agent's output only; the other data is internal to the caller's run.
        Value::Null if of_agent && !event["data"]["output"].is_null() => {
            format!("✓ {tool} ({time}) {}", short(&event["data"]["output"]))
        }
        Value::Null => format!("✓ {tool} ({time}) {}", short(&event["data"])),
        error => {
            let word = |field: &str| error[field].as_str().unwrap_or_default();
            format!(
                "✗ {tool} ({time}) {}: {}",
                word("code"),
                clipped(word("message"), 2 * SHORT)
            )
        }
    }
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
    if ms < 1000 {
        format!("{ms} ms")
    } else {
        format!("{}.{} s", ms / 1000, ms % 1000 / 100)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_called_agent_is_shown_indented_under_its_caller() {
        let mut story = RunStory::default();
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
        .flat_map(|event| story.event(event, false))
        .collect();
        assert_eq!(
            lines.join("\n"),
            "… hm hm\n  Let me see.\n→ agent helper {\"query\":\"x\"}\n  → grep {\"p\":\"\\u001b[2J\"}\n  ✗ grep (3 ms) tool_error: no\n    \
             Found\n    nothing.\n✓ helper (1.2 s) Found nothing.\n! step_limit: The step limit is exceeded."
        );
    }

    #[test]
    fn the_last_words_of_a_run_are_its_result_and_not_shown_twice() {
        let turn = json!({"type": "turn", "run_id": "a", "text": "Done.", "thoughts": [], "calls": []});
        let end = json!({"type": "end", "run_id": "a", "run": {"summary": "Done."}});
        let notice = json!({"type": "notice", "run_id": "a", "reason": null, "text": "Hand it in."});
        let mut story = RunStory::default();
        assert_eq!(story.event(&turn, false), [""; 0]);
        assert_eq!(story.event(&end, false), [""; 0]);
        let mut story = RunStory::default();
        story.event(&turn, false);
        assert_eq!(story.event(&notice, false), ["  Done.", "! Hand it in."]);
    }

    #[test]
    fn the_line_that_lives_shows_the_newest_words_on_one_line() {
        let mut story = RunStory::default();
        story.event(&json!({"type": "input", "run_id": "a", "text": "x"}), false);
        assert_eq!(story.now(), "model call 1: waiting for the model");
        // Thoughts only until the answer begins; the turn event shows them as a line, once.
        let thought = json!({"type": "thought", "run_id": "a", "text": "The user\nasks"});
        assert_eq!(story.event(&thought, false), [""; 0]);
        assert_eq!(story.now(), "model call 1: … The user asks");
        let text = format!("{} the\nend", "x".repeat(200));
        story.event(&json!({"type": "delta", "run_id": "a", "text": text}), false);
        assert_eq!(story.now(), format!("model call 1: {} the end", "x".repeat(42)));
        story.event(&json!({"type": "reset", "run_id": "a"}), false);
        assert_eq!(story.now(), "model call 1: waiting for the model");
    }

    #[test]
    fn of_a_step_its_agent_and_its_output_are_shown() {
        let mut story = RunStory::default();
        let step = |round: u32| json!({"type": "step", "run_id": "a", "step": 0, "round": round, "agent": "helper"});
        let call = json!({"type": "agent_call", "run_id": "a", "sequence": 1, "agent": "helper", "parameters": {}, "child_run_id": "b"});
        let data = json!({"output": "Found.", "exits_loop": false, "steps": 2, "tokens": 9});
        let done = json!({"type": "tool_result", "run_id": "a", "sequence": 1, "tool": "helper", "data": data, "error": null, "duration_ms": 3});
        let lines: Vec<_> = [step(1), call, done.clone(), step(2)]
            .iter()
            .flat_map(|event| story.event(event, false))
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
        assert!(story.event(&done, false)[0].contains("exits_loop"));
    }
}
