//! An approval request or an in-doubt action as text for a terminal: everything that would be or was sent, and no text
//! that can pass for something else.

use std::borrow::Cow;

use serde_json::Value;

use crate::cli::client::Action;
use crate::cli::gavel::Where;
use crate::domain::text::numbered;

/// The column where values begin.
const INDENT: usize = 14;

/// The approval request: one line per field; long texts in full, with their line breaks.
pub(in crate::cli) fn question(one: &Action) -> String {
    let mut lines = call(one);
    lines.push(field("asked because", &one.reason));
    lines.extend(one.warnings.iter().map(|warning| field("WARNING", warning)));
    lines.extend(one.expires_at.as_deref().map(|when| field("expires at", when)));
    lines.push(field("approval", one.approval_id.as_deref().unwrap_or_default()));
    lines.push(String::new());
    lines.join("\n")
}

/// An in-doubt action, in the same layout.
pub(super) fn in_doubt(one: &Action) -> String {
    let mut lines = call(one);
    lines[0].insert_str(0, "in doubt: ");
    lines.push(field("begun", one.started_at.as_deref().unwrap_or_default()));
    lines.push(field("action", &one.action_id));
    lines.push(String::new());
    lines.join("\n")
}

/// The tool, the user, the agent, and everything that is sent.
fn call(one: &Action) -> Vec<String> {
    let asker = [("for", &one.user_id), ("by the agent", &one.agent_id)];
    let asker: Vec<_> = asker
        .into_iter()
        .filter_map(|(word, who)| Some(format!("{word} {}", name(who.as_deref()?))))
        .collect();
    let head = format!("{} {}", name(&one.tool), asker.join(", "));
    let mut lines = vec![head.trim_end().to_owned()];
    lines.extend(one.account.as_deref().map(|account| field("from account", account)));
    lines.extend(one.recipients.as_ref().map(|to| field("goes to", &to.join("\n"))));
    let mut arguments: Vec<_> = one.arguments.iter().collect();
    arguments.sort_by_key(|(_, value)| rank(value, one.recipients.as_deref().unwrap_or_default()));
    lines.extend(
        arguments
            .into_iter()
            .map(|(argument, value)| field(argument, &in_full(value))),
    );
    lines
}

/// A text as it is, and texts one per line.
fn in_full(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            items.join("\n").into()
        }
        other => other.to_string().into(),
    }
}

/// Sort order of arguments: recipients first, then short values, then long text.
fn rank(value: &Value, recipients: &[String]) -> u8 {
    let text = value.to_string();
    let names = |one: &String| text.contains(one);
    match text.len() {
        ..=2000 if !value.is_string() && recipients.iter().any(names) => 0,
        ..=120 => 1,
        _ => 2,
    }
}

/// The commands that resolve it.
pub(in crate::cli) fn answers(one: &Action, place: &Where) -> String {
    let id = one.approval_id.as_deref().unwrap_or_default();
    let place = place.for_call_of(one.user_id.as_deref()).repeated();
    let always = match one.grantable {
        true => format!("  with a grant:  gavel approvals approve{place} {id} --always\n"),
        false => String::new(),
    };
    format!(
        "  to approve:    gavel approvals approve{place} {id}\n{always}  to reject:     gavel approvals reject{place} {id} --reason 'WHY'\n"
    )
}

/// The two commands of which one settles an in-doubt action, each on a line.
pub(in crate::cli) fn settles(action_id: &str, place: &str) -> String {
    format!(
        "  if it happened:          gavel approvals settle{place} {action_id} happened\n  \
         if it did not happen:    gavel approvals settle{place} {action_id} did_not_happen\n"
    )
}

/// How to settle an in-doubt action.
pub(super) fn settling(one: &Action, place: &Where) -> String {
    let id = &one.action_id;
    let place = place.for_call_of(one.user_id.as_deref()).repeated();
    let mut text = format!(
        "  look at the receiving end, then run one of these:\n{}",
        settles(id, &place)
    );
    if one.thread_id.is_none() {
        text.push_str(&format!(
            "  if its run is paused, settle it when you resume the run; for the command see:  gavel runs show{place} {}\n",
            one.run_id
        ));
    }
    text
}

fn field(label: &str, value: &str) -> String {
    let text = numbered(value).replace('\n', &format!("\n{:INDENT$}  ", ""));
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

    fn action(json: Value) -> Action {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_name_of_an_argument_makes_no_line_of_its_own() {
        let one = action(
            json!({"tool": "t\nx", "arguments": {"x\n  goes to       ann@corp.example": 1}, "approvalId": "0198"}),
        );
        let text = question(&one);
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn a_question_shows_all_that_would_be_sent_and_hides_nothing() {
        let one = action(json!({
            "tool": "gmail_send", "userId": "ann", "agentId": "workspace", "approvalId": "0198", "reason": "it has side effects",
            "arguments": {"to": ["bob@example.com", "eve@example.com"], "body": "Hi,\nit is \u{202e}late\u{1b}[2J", "urgent": true},
            "recipients": ["bob@example.com", "eve@example.com"], "warnings": ["eve@example.com is new"],
            "expiresAt": "2026-11-23T10:00:00Z",
        }));
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
