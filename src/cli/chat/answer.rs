//! A decision as text.

use serde_json::Value;

use crate::cli::output::printable;

/// The response of the model or of a template.
pub(super) fn words(decision: &Value) -> String {
    printable(text(decision, "response"))
}

/// One line about the decision: type, outcome, tools, model, time.
pub(super) fn footer(decision: &Value) -> String {
    let mut parts = vec![format!(
        "{} {}",
        text(decision, "decision_type"),
        text(decision, "outcome_category")
    )];
    let calls = decision.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let failure = call.pointer("/result/error/code").and_then(Value::as_str);
        let mark = failure.map_or_else(|| "✓".to_owned(), |code| format!("✗ {code}"));
        parts.push(format!("{} {mark}", printable(text(call, "tool"))));
    }
    parts.push(text(decision, "model").to_owned());
    parts.push(format!(
        "{} ms",
        decision.get("duration_ms").and_then(Value::as_u64).unwrap_or_default()
    ));
    format!("  ({})", parts.join(" · "))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_footer_tells_type_outcome_tools_model_and_time() {
        let decision = json!({
            "decision_type": "INVOKE_TOOL", "outcome_category": "SUCCESS:TASK_COMPLETED", "response": "Done\u{1b}[0m.",
            "tool_calls": [
                {"tool": "add_task", "result": {"success": true, "error": null}},
                {"tool": "wipe", "result": {"success": false, "error": {"code": "unknown_tool", "message": ""}}},
            ],
            "model": "demo", "duration_ms": 12,
        });
        assert_eq!(words(&decision), "Done\\u001b[0m.");
        assert_eq!(
            footer(&decision),
            "  (INVOKE_TOOL SUCCESS:TASK_COMPLETED · add_task ✓ · wipe ✗ unknown_tool · demo · 12 ms)"
        );
    }
}
