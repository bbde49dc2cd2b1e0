//! An approval request or an in-doubt action as text for a terminal: everything that would be or was sent, and no text
//! that can pass for something else.

use serde_json::Value;

use crate::cli::runs::Where;
use crate::domain::text::numbered;

/// The column where values begin.
const INDENT: usize = 14;

/// The approval request: one line per field; long texts in full, with their line breaks.
pub(in crate::cli) fn question(one: &Value) -> String {
    let mut lines = call(one);
    lines.push(field("asked because", &one["reason"]));
    for warning in one["warnings"].as_array().into_iter().flatten() {
        lines.push(field("WARNING", warning));
    }
    if one["expiresAt"].is_string() {
        lines.push(field("expires at", &one["expiresAt"]));
    }
    lines.push(field("approval", &one["approvalId"]));
    lines.push(String::new());
    lines.join("\n")
}

/// An in-doubt action, in the same layout.
pub(super) fn doubt(one: &Value) -> String {
    let mut lines = call(one);
    lines[0].insert_str(0, "in doubt: ");
    lines.push(field("begun", &one["startedAt"]));
    lines.push(field("action", &one["actionId"]));
    lines.push(String::new());
    lines.join("\n")
}

/// The tool, the user, the agent, and everything that is sent.
fn call(one: &Value) -> Vec<String> {
    let text = |field: &str| one[field].as_str().unwrap_or_default();
    let asker = [("for", "userId"), ("by the agent", "agentId")];
    let asker: Vec<_> = asker
        .iter()
        .filter(|(_, field)| !text(field).is_empty())
        .map(|(word, field)| format!("{word} {}", name(text(field))))
        .collect();
    let head = format!("{} {}", name(text("tool")), asker.join(", "));
    let mut lines = vec![head.trim_end().to_owned()];
    if one["account"].is_string() {
        lines.push(field("from account", &one["account"]));
    }
    let recipients = one["recipients"].as_array();
    if let Some(recipients) = recipients {
        lines.push(field("goes to", &Value::Array(recipients.clone())));
    }
    let mut arguments: Vec<_> = one["arguments"].as_object().into_iter().flatten().collect();
    arguments.sort_by_key(|(_, value)| rank(value, recipients.map(Vec::as_slice).unwrap_or_default()));
    for (argument, value) in arguments {
        lines.push(field(argument, value));
    }
    lines
}

/// Sort order of arguments: recipients first, then short values, then long text.
fn rank(value: &Value, recipients: &[Value]) -> u8 {
    let text = value.to_string();
    let names = |one: &Value| one.as_str().is_some_and(|one| text.contains(one));
    match text.len() {
        ..=2000 if !value.is_string() && recipients.iter().any(names) => 0,
        ..=120 => 1,
        _ => 2,
    }
}

/// The commands that resolve it.
pub(in crate::cli) fn answers(one: &Value, place: &Where) -> String {
    let id = one["approvalId"].as_str().unwrap_or_default();
    let place = place.for_call_of(one["userId"].as_str()).repeated();
    let always = match one["grantable"] == true {
        true => format!("  with a grant:  gavel approvals approve{place} {id} --always\n"),
        false => String::new(),
    };
    format!(
        "  to approve:    gavel approvals approve{place} {id}\n{always}  to reject:     gavel approvals reject{place} {id} --reason 'WHY'\n"
    )
}

/// The commands that settle an in-doubt action.
pub(super) fn settling(one: &Value, place: &Where) -> String {
    let id = one["actionId"].as_str().unwrap_or_default();
    let place = place.for_call_of(one["userId"].as_str()).repeated();
    // The pasted command fails as printed, since it has both answers in quotes: the user must choose one.
    let mut text = format!(
        "  find out, and keep either happened or did_not_happen:\n  to settle:     gavel approvals settle{place} {id} 'happened|did_not_happen'\n"
    );
    if one["threadId"].is_null() {
        let run = one["runId"].as_str().unwrap_or_default();
        text.push_str(&format!(
            "  if its run is paused, settle it when you resume the run; for the command see:  gavel runs show{place} {run}\n"
        ));
    }
    text
}

fn field(label: &str, value: &Value) -> String {
    let text = match value {
        Value::String(text) => numbered(text).into_owned(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let items = items.iter().filter_map(Value::as_str).map(numbered);
            items.collect::<Vec<_>>().join("\n")
        }
        other => numbered(&other.to_string()).into_owned(),
    };
    let text = text.replace('\n', &format!("\n{:INDENT$}  ", ""));
    format!("  {:<width$}{text}", name(label), width = INDENT)
}

/// On one line: a line break in a name could forge lines.
fn name(text: &str) -> String {
    numbered(text).replace('\n', "<U+000A>").replace('\t', "<U+0009>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_of_an_argument_makes_no_line_of_its_own() {
        let one =
            json!({"tool": "t\nx", "arguments": {"x\n  goes to       ann@corp.example": 1}, "approvalId": "0198"});
        let text = question(&one);
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn a_question_shows_all_that_would_be_sent_and_hides_nothing() {
        let one = json!({
            "tool": "gmail_send", "userId": "ann", "agentId": "workspace", "approvalId": "0198", "reason": "it has side effects",
            "arguments": {"to": ["bob@example.com", "eve@example.com"], "body": "Hi,\nit is \u{202e}late\u{1b}[2J", "urgent": true},
            "recipients": ["bob@example.com", "eve@example.com"], "warnings": ["eve@example.com is new"],
            "expiresAt": "2026-11-23T10:00:00Z",
        });
        assert_eq!(
            question(&one),
            "gmail_send for ann, by the agent workspace
  goes to       bob@example.com
                eve@example.com
  to            bob@example.com
                eve@example.com
  body          Hi,
                it is <U+202E>late<U+001B>[2J
  urgent        true
  asked because it has side effects
  WARNING       eve@example.com is new
  expires at    2026-11-23T10:00:00Z
  approval      0198
"
        );
    }
}
