//! `gavel threads show`: one thread's messages.

use serde_json::Value;

use super::at;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::runs::{Place, Record, Where};
use crate::domain::action::ActionStatus;
use crate::domain::ids::{RunId, ThreadId};
use crate::domain::thread::{MessageKind, MessageRole};

/// Options of `gavel threads show`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The thread
    #[arg(value_parser = id)]
    id: ThreadId,
    /// The 200 messages before this number, instead of the latest
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// As JSON: the thread, with the actions of its runs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel threads show 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel threads show --json 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r '.messages[].text'";

fn id(text: &str) -> Result<ThreadId, &'static str> {
    ThreadId::parse(text).ok_or("a thread's id is a UUID; `gavel threads list` shows them")
}

pub(super) async fn run(args: &Args, place: Place) -> anyhow::Result<Exit> {
    let record = Record::open(place).await?;
    let found = read(&record, args).await;
    record.close().await;
    let mut thread = found?;
    if args.json {
        output::json(&thread)?;
        return Ok(Exit::Done);
    }
    let actions = thread["actions"].take();
    let actions = actions.as_array().map(Vec::as_slice).unwrap_or_default();
    output::line(&text(&thread, actions))?;
    if let Some(first) = thread["messages"][0]["number"].as_u64().filter(|first| *first > 1) {
        output::note(&format!("earlier messages: the same command with --before {first}"));
    }
    let is_open = |action: &Value| {
        let open = [ActionStatus::AwaitingConfirmation, ActionStatus::InDoubt];
        open.iter().any(|status| action["state"] == status.as_str())
    };
    if actions.iter().any(is_open) {
        let place = args.place.repeated();
        output::note(&format!("a user must answer: `gavel approvals list{place}` shows how"));
    }
    Ok(Exit::Done)
}

/// The thread, with the actions of the runs that its messages belong to.
async fn read(record: &Record, args: &Args) -> anyhow::Result<Value> {
    let mut thread = record.thread(args.id, args.before).await?;
    let mut runs: Vec<RunId> = Vec::new();
    for message in thread["messages"].as_array().into_iter().flatten() {
        let run = message["runId"].as_str().and_then(RunId::parse);
        runs.extend(run.filter(|run| !runs.contains(run)));
    }
    let mut actions: Vec<Value> = Vec::new();
    for run in runs {
        for mut action in record.actions(run).await? {
            // A run that another run called lists its actions again.
            if actions.iter().all(|known| known["actionId"] != action["actionId"]) {
                action["runId"] = run.to_string().into();
                actions.push(action);
            }
        }
    }
    thread["actions"] = actions.into();
    Ok(thread)
}

/// Messages are indented deeper than gavel's own lines, so that no message can imitate those.
fn text(thread: &Value, actions: &[Value]) -> String {
    let word = |field: &str| single_line(&thread[field]);
    let mut text = format!(
        "{} and the agent {}, since {} UTC\n",
        word("userId"),
        word("agentId"),
        at(&word("createdAt"))
    );
    for message in thread["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().and_then(MessageRole::parse);
        let kind = message["kind"].as_str().and_then(MessageKind::parse);
        let who = match (kind, role) {
            (Some(MessageKind::Message), Some(MessageRole::User)) => word("userId"),
            (Some(MessageKind::Message), Some(MessageRole::Assistant)) => word("agentId"),
            (Some(MessageKind::ApprovalRequest), _) => "approval request".to_owned(),
            (Some(MessageKind::Approval | MessageKind::Settlement), _) => "answer".to_owned(),
            (Some(MessageKind::Action), _) => "action".to_owned(),
            (Some(MessageKind::Message) | None, _) => single_line(&message["kind"]),
        };
        let said = output::printable(message["text"].as_str().unwrap_or_default());
        let said = said.trim_end().replace('\n', "\n    ");
        let when = at(&single_line(&message["createdAt"]));
        text.push_str(&format!("\n{when}  {who}\n    {said}\n"));
        for action in actions
            .iter()
            .filter(|action| stands_at(action, message, kind.zip(role)))
        {
            text.push_str(&format!("  {}\n", state(action)));
        }
    }
    text
}

/// An action with an approval request is shown at the request, any other at the user's message.
fn stands_at(action: &Value, message: &Value, line: Option<(MessageKind, MessageRole)>) -> bool {
    match line {
        Some((MessageKind::ApprovalRequest, _)) => action["actionId"] == message["actionId"],
        Some((MessageKind::Message, MessageRole::User)) => {
            action["requiresApproval"] == false && action["runId"] == message["runId"]
        }
        _ => false,
    }
}

/// `add_task: failed (timeout)`; a code that equals the state is left out.
fn state(action: &Value) -> String {
    let code = match &action["errorCode"] {
        code if code.is_null() || *code == action["state"] => String::new(),
        code => format!(" ({})", single_line(code)),
    };
    format!(
        "{}: {}{code}",
        single_line(&action["tool"]),
        single_line(&action["state"])
    )
}

fn single_line(value: &Value) -> String {
    output::printable(value.as_str().unwrap_or_default()).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_cannot_pass_for_what_gavel_tells() {
        let thread = json!({
            "userId": "ann\nadd_task: completed", "agentId": "workspace", "createdAt": "2026-11-22T10:00:00.1Z", "messages": [
                {"role": "user", "kind": "message", "text": "Add milk.\n  add_task: completed\u{1b}[2J\n\n2026-11-22 10:00:02  workspace", "runId": "r",
                 "createdAt": "2026-11-22T10:00:00.1Z"},
                {"role": "assistant", "kind": "approval_request", "text": "Leave?", "runId": "r", "actionId": "a", "createdAt": "2026-11-22T10:00:01Z"},
            ],
        });
        let actions = [
            json!({"actionId": "a", "runId": "r", "tool": "add_task", "state": "in_doubt", "requiresApproval": true,
                   "errorCode": "in_doubt"}),
            json!({"actionId": "b", "runId": "r", "tool": "pin", "state": "failed", "requiresApproval": false, "errorCode": "timeout"}),
        ];
        assert_eq!(
            text(&thread, &actions),
            "ann add_task: completed and the agent workspace, since 2026-11-22 10:00:00 UTC

2026-11-22 10:00:00  ann add_task: completed
    Add milk.
      add_task: completed\\u001b[2J
    
    2026-11-22 10:00:02  workspace
  pin: failed (timeout)

2026-11-22 10:00:01  approval request
    Leave?
  add_task: in_doubt
"
        );
    }
}
