//! The steps of a task as text for a terminal: each with what the model thought, did, saw and concluded.

use serde_json::Value;

use super::fields::given;
use crate::cli::client::Step;
use crate::cli::runs::time;
use crate::cli::table::{clipped, single_line};

/// Most characters of arguments and of an observation; `--json` has all.
const SHORT: usize = 400;

/// One step.
pub(super) fn step(step: &Step) -> String {
    let mut text = format!("\n  step {}{}\n", step.n, state(step));
    let action = &step.action;
    let tool = action["tool"].as_str();
    let action = tool.map(|tool| {
        format!(
            "{} {}",
            single_line(tool),
            clipped(&action["arguments"].to_string(), SHORT)
        )
    });
    let fields = [
        ("reason", step.reason.clone()),
        ("act", action),
        ("observed", observation(&step.observation)),
        ("reflect", reflection(&step.reflection)),
    ];
    let fields = fields.iter().map(|(name, value)| (*name, value.as_ref()));
    text.push_str(&given(fields));
    text
}

/// `  completed, 1.2 s`.
fn state(step: &Step) -> String {
    let state = step.state.as_deref().map(single_line);
    let duration = step.duration_ms.map(time);
    let parts: Vec<_> = [state, duration].into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("  {}", parts.join(", ")),
    }
}

fn observation(observation: &Value) -> Option<String> {
    match observation {
        Value::Null => None,
        Value::String(text) => Some(clipped(text, SHORT)),
        other => Some(clipped(&other.to_string(), SHORT)),
    }
}

fn reflection(reflection: &Value) -> Option<String> {
    let summary = reflection["summary"].as_str()?;
    let is_complete = reflection["isTaskComplete"] == true;
    let mut text = format!("{}{summary}", if is_complete { "complete: " } else { "" });
    let evidence = reflection["evidence"].as_array().into_iter().flatten();
    for one in evidence {
        let step = one["observation"].as_u64().unwrap_or_default();
        let quote = clipped(one["quote"].as_str().unwrap_or_default(), SHORT);
        text.push_str(&format!("\nstep {step} shows \"{quote}\""));
    }
    if let Some(why) = reflection["giveUp"].as_str() {
        text.push_str(&format!("\ngives up: {why}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// P-305: reason, action, observation and reflection of a step, on lines that text of others cannot forge.
    #[test]
    fn a_step_shows_what_was_thought_done_seen_and_concluded() {
        let done = json!({
            "n": 2, "reason": "Run the tests.\n  act         nothing", "state": "completed", "durationMs": 41_200,
            "action": {"tool": "executeScript", "arguments": {"script": "make test"}},
            "observation": {"exitCode": 0, "stdout": "118 passed\u{1b}[2J"},
            "reflection": {"isTaskComplete": true, "summary": "They pass.", "evidence": [{"observation": 2, "quote": "118 passed"}], "giveUp": null},
        });
        let done: Step = serde_json::from_value(done).unwrap();
        assert_eq!(
            step(&done),
            "
  step 2  completed, 41.2 s
  reason      Run the tests.
                act         nothing
  act         executeScript {\"script\":\"make test\"}
  observed    {\"exitCode\":0,\"stdout\":\"118 passed\\u001b[2J\"}
  reflect     complete: They pass.
              step 2 shows \"118 passed\"
"
        );
        let waits =
            json!({"n": 3, "reason": null, "action": null, "observation": null, "reflection": null, "state": null});
        assert_eq!(step(&serde_json::from_value(waits).unwrap()), "\n  step 3\n");
    }
}
