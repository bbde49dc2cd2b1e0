//! The steps of a task as text for a terminal: each with what the model thought, did, saw and concluded.

use serde_json::value::RawValue;

use super::fields::given;
use crate::api::planning::{Step, StepReflection};
use crate::cli::runs::time;
use crate::cli::table::{clipped, single_line};

/// Most characters of arguments and of an observation; `--json` has all.
const SHORT: usize = 400;

/// One step.
pub(super) fn step(step: &Step) -> String {
    let mut text = format!("\n  step {}{}\n", step.n, state(step));
    let action = step.action.as_ref();
    let action = action.map(|done| format!("{} {}", single_line(&done.tool), clipped(done.arguments.get(), SHORT)));
    let fields = [
        ("reason", step.reason.clone()),
        ("act", action),
        ("observed", step.observation.as_deref().map(observation)),
        ("reflect", step.reflection.as_ref().map(reflection)),
    ];
    let fields = fields.iter().map(|(name, value)| (*name, value.as_ref()));
    text.push_str(&given(fields));
    text
}

/// `  completed, 1.2 s`.
fn state(step: &Step) -> String {
    let state = step.state.map(|state| state.to_string());
    let duration = step.duration_ms.map(time);
    let parts: Vec<_> = [state, duration].into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("  {}", parts.join(", ")),
    }
}

/// A text as it is, anything else as JSON.
fn observation(observation: &RawValue) -> String {
    let text: Result<String, _> = serde_json::from_str(observation.get());
    clipped(text.as_deref().unwrap_or(observation.get()), SHORT)
}

fn reflection(reflection: &StepReflection) -> String {
    let complete = if reflection.is_task_complete { "complete: " } else { "" };
    let mut text = format!("{complete}{}", reflection.summary);
    for one in &reflection.evidence {
        text.push_str(&format!(
            "\nstep {} shows \"{}\"",
            one.observation,
            clipped(&one.quote, SHORT)
        ));
    }
    if let Some(why) = &reflection.give_up {
        text.push_str(&format!("\ngives up: {why}"));
    }
    text
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
            "reflection": {"isTaskComplete": true, "summary": "They pass.", "evidence": [{"observation": 2, "quote": "118 passed"}],
                "learnings": [], "planChanges": [], "giveUp": null},
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
