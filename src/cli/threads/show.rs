//! `gavel threads show`: one thread's messages.

use anyhow::anyhow;

use crate::app::Work;
use crate::cli::client::{Action, Answer, Client, Message, Refused, Thread};
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::at;
use crate::cli::output;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{RunId, ThreadId};
use crate::domain::thread::{MessageKind, MessageRole};

/// Options of `gavel threads show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
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

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let thread = gavel.thread(self.id, self.before).await;
        let mut thread = thread.map_err(|error| match Refused::in_error(&error) {
            Some(refused) if refused.is_not_found() => {
                anyhow!("there is no thread {}{}", self.id, self.place.whose_words())
            }
            _ => error,
        })?;
        let actions = actions(gavel, &thread).await?;
        if self.json {
            thread.json["actions"] = actions.into_iter().map(|action| action.json).collect();
            output::json(&thread)?;
            return Ok(Exit::Done);
        }
        output::line(&text(&thread, &actions))?;
        if let Some(first) = thread.messages.first().filter(|first| first.number > 1) {
            let first = first.number;
            output::note(&format!("earlier messages: the same command with --before {first}"));
        }
        let open = [ActionStatus::AwaitingConfirmation, ActionStatus::InDoubt];
        let is_open = |action: &Answer<Action>| open.iter().any(|status| action.state == status.as_str());
        if actions.iter().any(is_open) {
            let place = self.place.repeated();
            output::note(&format!("a user must answer: `gavel approvals list{place}` shows how"));
        }
        Ok(Exit::Done)
    }
}

/// The actions of the runs that the thread's messages belong to.
async fn actions(client: &Client, thread: &Thread) -> anyhow::Result<Vec<Answer<Action>>> {
    let mut runs: Vec<RunId> = Vec::new();
    for message in &thread.messages {
        let run = RunId::parse(&message.run_id);
        runs.extend(run.filter(|run| !runs.contains(run)));
    }
    let mut actions: Vec<Answer<Action>> = Vec::new();
    for run in runs {
        for mut action in client.actions(run).await? {
            // A run that another run called lists its actions again.
            if actions.iter().all(|known| known.action_id != action.action_id) {
                action.set_run(&run.to_string());
                action.set_user(&thread.user_id);
                actions.push(action);
            }
        }
    }
    Ok(actions)
}

/// Messages are indented deeper than gavel's own lines, so that no message can imitate those.
fn text(thread: &Thread, actions: &[Answer<Action>]) -> String {
    let (user, agent) = (single_line(&thread.user_id), single_line(&thread.agent_id));
    let mut text = format!(
        "{user} and the agent {agent}, since {} UTC\n",
        at(&single_line(&thread.created_at))
    );
    for message in &thread.messages {
        let role = MessageRole::parse(&message.role);
        let kind = MessageKind::parse(&message.kind);
        let who = match (kind, role) {
            (Some(MessageKind::Message), Some(MessageRole::User)) => user.clone(),
            (Some(MessageKind::Message), Some(MessageRole::Assistant)) => agent.clone(),
            (Some(MessageKind::ApprovalRequest), _) => "approval request".to_owned(),
            (Some(MessageKind::Approval | MessageKind::Settlement), _) => "answer".to_owned(),
            (Some(MessageKind::Action), _) => "action".to_owned(),
            (Some(MessageKind::Message) | None, _) => single_line(&message.kind),
        };
        let said = output::printable(&message.text);
        let said = said.trim_end().replace('\n', "\n    ");
        let when = at(&single_line(&message.created_at));
        text.push_str(&format!("\n{when}  {who}\n    {said}\n"));
        for action in actions
            .iter()
            .filter(|action| belongs_to(action, message, kind.zip(role)))
        {
            text.push_str(&format!("  {}\n", state(action)));
        }
    }
    text
}

/// An action with an approval request is shown at the request, any other at the user's message.
fn belongs_to(action: &Action, message: &Message, line: Option<(MessageKind, MessageRole)>) -> bool {
    match line {
        Some((MessageKind::ApprovalRequest, _)) => message.action_id.as_ref() == Some(&action.action_id),
        Some((MessageKind::Message, MessageRole::User)) => !action.requires_approval && action.run_id == message.run_id,
        _ => false,
    }
}

/// `add_task: failed (timeout)`; a code that equals the state is left out.
fn state(action: &Action) -> String {
    let code = action.error_code.as_ref().filter(|code| **code != action.state);
    let code = code.map_or_else(String::new, |code| format!(" ({})", single_line(code)));
    format!("{}: {}{code}", single_line(&action.tool), single_line(&action.state))
}

fn single_line(text: &str) -> String {
    output::printable(text).replace(['\n', '\t'], " ")
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
        let thread: Thread = serde_json::from_value(thread).unwrap();
        let actions = [
            json!({"actionId": "a", "runId": "r", "tool": "add_task", "state": "in_doubt", "requiresApproval": true,
                   "errorCode": "in_doubt"}),
            json!({"actionId": "b", "runId": "r", "tool": "pin", "state": "failed", "requiresApproval": false, "errorCode": "timeout"}),
        ];
        let actions: [Answer<Action>; 2] = actions.map(|action| serde_json::from_value(action).unwrap());
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
