//! `gavel threads`: the messages of users and agents.

use crate::api::threads::{ActionAnswer, Thread, ThreadMessage, ThreadPage, ThreadSummary};
use crate::cli::client::{Client, parameters};
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk};
use crate::cli::list::{Column, Paging, at, clipped, single_line};
use crate::cli::runs::{self, ActionOf};
use crate::cli::{commands, output};
use crate::domain::action::ActionStatus;
use crate::domain::ids::{RunId, ThreadId};
use crate::domain::thread::{MessageKind, MessageRole};

commands! {
    /// The commands of `gavel threads`.
    Command {
        /// List threads, the most recently active first
        List(List),
        /// Show one thread: its messages, approval requests and their results
        Show(Show),
    }
}

/// Options of `gavel threads list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(super) struct List {
    #[command(flatten)]
    paging: Paging,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel threads list --user ann
  gavel threads list --json | jq -r .threadId
  gavel threads list --server http://localhost:8080 --user ann

A remote gavel lists only one user's threads.";

const COLUMNS: &[Column<ThreadSummary>] = &[
    ("last (UTC)", |thread| at(thread.updated_at)),
    ("thread", |thread| thread.thread_id.to_string()),
    ("user", |thread| clipped(&thread.user_id, 24)),
    ("agent", |thread| clipped(&thread.agent_id, 32)),
    ("state", |thread| {
        thread.latest_run.as_ref().map_or("-", |run| &run.state).to_owned()
    }),
    ("begins with", |thread| {
        clipped(thread.title.as_deref().unwrap_or_default(), 60)
    }),
];

impl Talk for List {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let page = gavel
            .page::<ThreadPage, _>("api/agent/threads", &self.paging.query())
            .await?;
        self.paging
            .print(&page, &format!("no threads{}", gavel.place.whose_words()), COLUMNS)
    }
}

/// Options of `gavel threads show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
pub(super) struct Show {
    /// The thread
    id: ThreadId,
    /// The 200 messages before this number, instead of the latest
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// As JSON: the thread, with the actions of its runs
    #[arg(long)]
    json: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  gavel threads show 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel threads show --json 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r '.messages[].text'";

impl Talk for Show {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let query = parameters([("before", self.before.map(|before| before.to_string()))]);
        let thread: Thread = gavel
            .get_with(&format!("api/agent/threads/{}", self.id), &query)
            .await?;
        let actions = actions(gavel, &thread).await?;
        if self.json {
            let mut whole = serde_json::to_value(&thread)?;
            let actions = actions.iter().map(|(run_id, action)| ActionOf {
                user_id: Some(&thread.user_id),
                run_id: Some(*run_id),
                action,
            });
            whole["actions"] = serde_json::to_value(actions.collect::<Vec<_>>())?;
            output::json(&whole)?;
            return Ok(Exit::Done);
        }
        output::line(&show_text(&thread, &actions))?;
        if let Some(first) = thread.messages.first().filter(|first| first.number > 1) {
            let first = first.number;
            output::note(&format!("earlier messages: the same command with --before {first}"));
        }
        let open = [ActionStatus::AwaitingConfirmation, ActionStatus::InDoubt];
        if actions.iter().any(|(_, action)| open.contains(&action.state)) {
            output::note(&format!(
                "a user must answer: `{}` shows how",
                gavel.command("approvals list")
            ));
        }
        Ok(Exit::Done)
    }
}

/// The actions of the runs that the thread's messages belong to, each with its run.
async fn actions(client: &Client, thread: &Thread) -> anyhow::Result<Vec<(RunId, ActionAnswer)>> {
    let mut of_messages: Vec<RunId> = Vec::new();
    for message in &thread.messages {
        if !of_messages.contains(&message.run_id) {
            of_messages.push(message.run_id);
        }
    }
    let mut actions: Vec<(RunId, ActionAnswer)> = Vec::new();
    for run in of_messages {
        for action in runs::actions(client, run).await? {
            // A run that another run called lists its actions again.
            if actions.iter().all(|(_, known)| known.action_id != action.action_id) {
                actions.push((run, action));
            }
        }
    }
    Ok(actions)
}

/// Messages are indented deeper than gavel's own lines, so that no message can imitate those.
fn show_text(thread: &Thread, actions: &[(RunId, ActionAnswer)]) -> String {
    let (user, agent) = (single_line(&thread.user_id), single_line(&thread.agent_id));
    let mut text = format!("{user} and the agent {agent}, since {} UTC\n", at(thread.created_at));
    for message in &thread.messages {
        let who = match (message.kind, message.role) {
            (MessageKind::Message, MessageRole::User) => &user,
            (MessageKind::Message, MessageRole::Assistant) => &agent,
            (MessageKind::ApprovalRequest, _) => "approval request",
            (MessageKind::Approval | MessageKind::Settlement, _) => "answer",
            (MessageKind::Action, _) => "action",
        };
        let said = output::printable(&message.text);
        let said = said.trim_end().replace('\n', "\n    ");
        text.push_str(&format!("\n{}  {who}\n    {said}\n", at(message.created_at)));
        for (_, action) in actions.iter().filter(|action| belongs_to(action, message)) {
            text.push_str(&format!("  {}\n", state(action)));
        }
    }
    text
}

/// An action with an approval request is shown at the request, any other at the user's message.
fn belongs_to((run, action): &(RunId, ActionAnswer), message: &ThreadMessage) -> bool {
    match (message.kind, message.role) {
        (MessageKind::ApprovalRequest, _) => message.action_id == Some(action.action_id),
        (MessageKind::Message, MessageRole::User) => !action.requires_approval && *run == message.run_id,
        _ => false,
    }
}

/// `add_task: failed (timeout)`; a code that equals the state is left out.
fn state(action: &ActionAnswer) -> String {
    let code = action
        .error_code
        .as_deref()
        .filter(|code| *code != action.state.as_str());
    let code = code.map_or_else(String::new, |code| format!(" ({})", single_line(code)));
    format!("{}: {}{code}", single_line(&action.tool), action.state)
}

#[cfg(test)]
mod show_tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn a_message_cannot_pass_for_what_gavel_tells() {
        let (run, a) = (
            "01980000-0000-7000-8000-000000000001",
            "01980000-0000-7000-8000-00000000000a",
        );
        let line = |with| serde_json::to_value(sample::<ThreadMessage>(with)).unwrap();
        let thread: Thread = sample(json!({
            "userId": "ann\nadd_task: completed", "agentId": "workspace", "createdAt": "2026-11-22T10:00:00.1Z", "messages": [
                line(json!({"role": "user", "kind": "message", "text": "Add milk.\n  add_task: completed\u{1b}[2J\n\n2026-11-22 10:00:02  workspace",
                    "runId": run, "createdAt": "2026-11-22T10:00:00.1Z"})),
                line(json!({"role": "assistant", "kind": "approval_request", "text": "Leave?", "runId": run, "actionId": a,
                    "createdAt": "2026-11-22T10:00:01Z"})),
            ],
        }));
        let actions = [
            json!({"actionId": a, "tool": "add_task", "state": "in_doubt", "requiresApproval": true, "errorCode": "in_doubt"}),
            json!({"tool": "pin", "state": "failed", "errorCode": "timeout"}),
        ];
        let actions = actions.map(|action| (RunId::parse(run).unwrap(), sample(action)));
        assert_eq!(
            show_text(&thread, &actions),
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
