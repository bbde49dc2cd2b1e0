//! An approval request or an in-doubt action as text for a terminal: everything that would be or was sent, and no text
//! that can pass for something else.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::approvals::{ActionInDoubt, Asked, PendingApproval};
use crate::api::threads::ActionAnswer;
use crate::cli::gavel::Where;
use crate::domain::ids::{ActionId, ApprovalId};
use crate::domain::text::numbered;
use crate::domain::time::Timestamp;

/// The column where values begin.
const INDENT: usize = 14;

/// A call that an approver is asked about, as an approval request or its run has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) approval: ApprovalId,
    tool: &'a str,
    user: Option<&'a str>,
    agent: Option<&'a str>,
    arguments: &'a RawValue,
    asked: &'a Asked,
    expires_at: Option<Timestamp>,
}

impl<'a> From<&'a PendingApproval> for Question<'a> {
    fn from(one: &'a PendingApproval) -> Self {
        Self {
            approval: one.approval_id,
            tool: &one.tool,
            user: Some(&one.user_id),
            agent: Some(&one.agent_id),
            arguments: &one.arguments,
            asked: &one.asked,
            expires_at: Some(one.expires_at),
        }
    }
}

impl<'a> Question<'a> {
    /// The question of an action, if it waits for an answer. A run does not repeat its user for each action.
    pub(crate) fn new(action: &'a ActionAnswer, user: Option<&'a str>) -> Option<Self> {
        Some(Self {
            approval: action.approval_id?,
            tool: &action.tool,
            user,
            agent: None,
            arguments: action.arguments.as_deref()?,
            asked: action.asked.as_ref()?,
            expires_at: action.expires_at,
        })
    }
}

/// The approval request: one line per field; long texts in full, with their line breaks.
pub(crate) fn question(one: &Question<'_>) -> String {
    let asked = one.asked;
    let mut lines = vec![head(one.tool, one.user, one.agent)];
    lines.extend(asked.account.as_deref().map(|account| field("from account", account)));
    lines.extend(sent(asked.recipients.as_deref(), one.arguments));
    lines.push(field("asked because", &asked.reason));
    lines.extend(asked.warnings.iter().map(|warning| field("WARNING", warning)));
    lines.extend(one.expires_at.map(|when| field("expires at", &when.to_string())));
    lines.push(field("approval", &one.approval.to_string()));
    lines.concat()
}

/// An in-doubt action, in the same layout.
pub(super) fn in_doubt(one: &ActionInDoubt) -> String {
    let begun = one.started_at.map(|at| at.to_string()).unwrap_or_default();
    let mut lines = vec![format!(
        "in doubt: {}",
        head(&one.tool, Some(&one.user_id), Some(&one.agent_id))
    )];
    lines.extend(sent(one.recipients.as_deref(), &one.arguments));
    lines.extend([field("begun", &begun), field("action", &one.action_id.to_string())]);
    lines.concat()
}

/// The tool, the user and the agent.
fn head(tool: &str, user: Option<&str>, agent: Option<&str>) -> String {
    let asker = [("for", user), ("by the agent", agent)];
    let asker = asker
        .into_iter()
        .filter_map(|(word, who)| Some(format!("{word} {}", name(who?))));
    let head = format!("{} {}", name(tool), asker.collect::<Vec<_>>().join(", "));
    format!("{}\n", head.trim_end())
}

/// Everything that is sent.
fn sent(recipients: Option<&[String]>, arguments: &RawValue) -> Vec<String> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments.get()).unwrap_or_default();
    let mut arguments: Vec<_> = arguments.iter().collect();
    arguments.sort_by_key(|(_, value)| rank(value, recipients.unwrap_or_default()));
    let to = recipients.map(|to| field("goes to", &to.join("\n")));
    let arguments = arguments
        .into_iter()
        .map(|(argument, value)| field(argument, &in_full(value)));
    to.into_iter().chain(arguments).collect()
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
pub(crate) fn answers(one: &Question<'_>, place: &Where) -> String {
    let id = one.approval;
    let place = place.for_call_of(one.user).repeated();
    let always = match one.asked.grantable {
        true => format!("  with a grant:  gavel approvals approve{place} {id} --always\n"),
        false => String::new(),
    };
    format!(
        "  to approve:    gavel approvals approve{place} {id}\n{always}  to reject:     gavel approvals reject{place} {id} --reason 'WHY'\n"
    )
}

/// How to settle an in-doubt action.
pub(crate) fn settles(action_id: ActionId, place: &str) -> String {
    format!(
        "  look at the receiving end, then run one of these:\n  \
         if it happened:          gavel approvals settle{place} {action_id} happened\n  \
         if it did not happen:    gavel approvals settle{place} {action_id} did_not_happen\n"
    )
}

/// How to settle an in-doubt action, also if its run is paused.
pub(super) fn settling(one: &ActionInDoubt, place: &Where) -> String {
    let place = place.for_call_of(Some(&one.user_id)).repeated();
    let mut text = settles(one.action_id, &place);
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
    format!("  {:<INDENT$}{text}\n", name(label))
}

/// On one line: a line break in a name could forge lines.
fn name(text: &str) -> String {
    numbered(text).replace('\n', "<U+000A>").replace('\t', "<U+0009>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    const ID: &str = "01980000-0000-7000-8000-000000000000";

    #[test]
    fn the_name_of_an_argument_makes_no_line_of_its_own() {
        let one: PendingApproval = sample(json!({
            "tool": "t\nx", "arguments": {"x\n  goes to       ann@corp.example": 1},
        }));
        let text = question(&(&one).into());
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn a_question_shows_all_that_would_be_sent_and_hides_nothing() {
        let one: PendingApproval = sample(json!({
            "tool": "gmail_send", "userId": "ann", "agentId": "workspace", "approvalId": ID, "reason": "it has side effects",
            "arguments": {"to": ["bob@example.com", "eve@example.com"], "body": "Hi,\nit is \u{202e}late\u{1b}[2J", "urgent": true},
            "recipients": ["bob@example.com", "eve@example.com"], "warnings": ["eve@example.com is new"],
            "expiresAt": "2026-11-23T10:00:00Z",
        }));
        assert_eq!(
            question(&(&one).into()),
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
  expires at    2026-11-23T10:00:00.000000Z
  approval      01980000-0000-7000-8000-000000000000
"
        );
    }
}
