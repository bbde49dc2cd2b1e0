//! `gavel threads`: the messages of users and agents.

use anyhow::anyhow;
use clap::Subcommand;

use crate::api::threads::{ActionAnswer, Thread, ThreadMessage, ThreadSummary};
use crate::app::Work;
use crate::cli::client::{Client, Refused};
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::clipped;
use crate::cli::list::{Paging, at, rows};
use crate::cli::runs::ActionOf;
use crate::cli::{output, talk};
use crate::config::Flags;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{RunId, ThreadId};
use crate::domain::thread::{MessageKind, MessageRole};

/// The commands of `gavel threads`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List threads, the most recently active first
    List(List),
    /// Show one thread: its messages, approval requests and their results
    Show(Show),
}

impl Command {
    pub(super) fn run(&self, flags: &Flags) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => talk(args, flags),
            Self::Show(args) => talk(args, flags),
        }
    }
}

/// Options of `gavel threads list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(super) struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    place: Where,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel threads list --user ann
  gavel threads list --json | jq -r .threadId
  gavel threads list --server http://localhost:8080 --user ann

A remote gavel lists only one user's threads.";

const LIST_HEADS: [&str; 6] = ["last (UTC)", "thread", "user", "agent", "state", "begins with"];

impl Talk for List {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let page = gavel.threads(&self.paging.query()).await?;
        let none = format!("no threads{}", self.place.whose_words());
        self.paging
            .print(&page, &none, |threads| rows(&LIST_HEADS, threads, list_row))
    }
}

fn list_row(thread: &ThreadSummary) -> Vec<String> {
    vec![
        at(thread.updated_at),
        thread.thread_id.to_string(),
        clipped(&thread.user_id, 24),
        clipped(&thread.agent_id, 32),
        thread.latest_run.as_ref().map_or("-", |run| &run.state).to_owned(),
        clipped(thread.title.as_deref().unwrap_or_default(), 60),
    ]
}

/// Options of `gavel threads show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
pub(super) struct Show {
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
    place: Where,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  gavel threads show 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel threads show --json 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r '.messages[].text'";

fn id(text: &str) -> Result<ThreadId, &'static str> {
    ThreadId::parse(text).ok_or("a thread's id is a UUID; `gavel threads list` shows them")
}

impl Talk for Show {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let thread = gavel.thread(self.id, self.before).await;
        let thread = thread.map_err(|error| match Refused::in_error(&error) {
            Some(refused) if refused.is_not_found() => {
                anyhow!("there is no thread {}{}", self.id, self.place.whose_words())
            }
            _ => error,
        })?;
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
            let place = self.place.repeated();
            output::note(&format!("a user must answer: `gavel approvals list{place}` shows how"));
        }
        Ok(Exit::Done)
    }
}

/// The actions of the runs that the thread's messages belong to, each with its run.
async fn actions(client: &Client, thread: &Thread) -> anyhow::Result<Vec<(RunId, ActionAnswer)>> {
    let mut runs: Vec<RunId> = Vec::new();
    for message in &thread.messages {
        if !runs.contains(&message.run_id) {
            runs.push(message.run_id);
        }
    }
    let mut actions: Vec<(RunId, ActionAnswer)> = Vec::new();
    for run in runs {
        for action in client.actions(run).await? {
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

fn single_line(text: &str) -> String {
    output::printable(text).replace(['\n', '\t'], " ")
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
