//! `gavel plan execute`: confirms a plan, and watches the work on it.

use super::follow::{Followed, How, Showing, follow, found, path, session, tell};
use super::text::confirmation;
use super::{STATUSES, connect_servers, id};
use crate::api::planning::{DryRun, ExecuteBody, Fitness, Session};
use crate::cli::client::Wait;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Work};
use crate::cli::interrupt::or_stopped_with;
use crate::cli::list::{single_line, table};
use crate::cli::output;
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::TASK_WORKER;

/// Options of `gavel plan execute`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// The version that you confirm; if another one is current, nothing begins [default: the current version]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    plan_version: Option<u32>,
    /// Ask a person before each call of this tool, although the plan names it (repeatable)
    #[arg(long, value_name = "TOOL")]
    ask_for: Vec<String>,
    /// Begin nothing: show what the policy would answer for each tool of the plan, and the state of the servers
    #[arg(long, conflicts_with_all = ["events", "background"])]
    dry_run: bool,
    /// Do not watch the work: print the session's id. Only with --server: without it, this process does the work
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan execute 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan execute --plan-version 2 --ask-for createPullRequest 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan execute --dry-run 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan execute --server http://localhost:8080 --background 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80

This confirms the plan: its tools may then act on its repository without asking again, and on nothing else. A person \
must approve what the plan does not name, what the policy reserves and what --ask-for names. The plan can no longer be \
refined or edited. Each task ends when a result shows that it is done. A session that was executed before is only \
watched. Ctrl-C stops watching; the work continues until it is done, cancelled, or past the deadline.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let execute = ExecuteBody {
            plan_version: self.plan_version,
            ask_for: self.ask_for.clone(),
            dry_run: self.dry_run,
        };
        connect_servers(gavel, TASK_WORKER).await?;
        if self.dry_run {
            return dry_run(gavel, self.id, &execute, self.showing.json).await;
        }
        if self.background {
            let begun = confirmed(gavel, self.id, &execute).await?;
            output::line(&begun.session_id.to_string())?;
            if !self.showing.quiet {
                output::note(&format!("watch it: {} {}", gavel.command("plan watch"), self.id));
            }
            return Ok(Exit::Done);
        }
        executed(gavel, self.id, &execute, self.showing).await
    }
}

/// Confirms a plan, and follows the work on it to its end.
///
/// # Errors
/// The confirmation is refused, or the session can no longer be read.
pub(super) async fn executed(
    gavel: &Gavel,
    id: PlanningSessionId,
    execute: &ExecuteBody,
    showing: Showing,
) -> anyhow::Result<Exit> {
    let begun = confirmed(gavel, id, execute).await?;
    if let Some(confirmation) = confirmation(&begun).filter(|_| !showing.quiet && !showing.events) {
        output::note(&confirmation);
    }
    match follow(gavel, begun, showing, How::BEGUN).await? {
        Followed::Left => Ok(Exit::Interrupted),
        Followed::Waits => {
            if showing.json {
                output::json(&session(gavel, id).await?)?;
            }
            output::note(&format!(
                "session {id} waits for a person, and continues after the answer: {} {id}",
                gavel.command("plan watch")
            ));
            Ok(Exit::NeedsApproval)
        }
        Followed::Reached(ended) => tell(gavel, &ended, showing),
    }
}

/// Sends the confirmation.
async fn confirmed(gavel: &Gavel, id: PlanningSessionId, execute: &ExecuteBody) -> anyhow::Result<Session> {
    let path = format!("{}/execute", path(id));
    let begun = or_stopped_with(gavel.post(&path, &[], Wait::Begun, execute), || {
        format!(
            "it is unknown whether the plan was confirmed; `{} {id}` says so",
            gavel.command("plan show")
        )
    });
    found(gavel, begun.await, id)
}

const HEADS: [&str; 4] = ["task", "tool", "answer", "why"];

/// Shows what would happen; nothing begins.
///
/// # Errors
/// The plan could not be confirmed now.
async fn dry_run(gavel: &Gavel, id: PlanningSessionId, execute: &ExecuteBody, as_json: bool) -> anyhow::Result<Exit> {
    let path = format!("{}/execute", path(id));
    let dry_run: DryRun = found(gavel, gavel.post(&path, &[], Wait::No, execute).await, id)?;
    match as_json {
        true => output::json(&dry_run)?,
        false => output::line(&text(&dry_run))?,
    }
    Ok(Exit::Done)
}

/// A line for each tool of each task, one with the servers, and one for each thing that they act on.
fn text(dry_run: &DryRun) -> String {
    let tools = dry_run.tasks.iter();
    let tools = tools.flat_map(|task| task.tools.iter().map(|tool| (&task.task_id, tool)));
    let rows: Vec<Vec<String>> = tools
        .map(|(task, tool)| {
            let (task, answer) = (task.to_string(), tool.answer.to_string());
            vec![task, tool.tool.clone(), answer, tool.reason.clone()]
        })
        .collect();
    let mut text = format!(
        "plan {} was not confirmed; nothing has begun\n\n{}",
        dry_run.plan_version,
        table(&HEADS, &rows)
    );
    let servers = dry_run.servers.iter();
    let servers: Vec<_> = servers
        .map(|server| {
            let why = server.reason.as_deref().map(|why| format!(" ({})", single_line(why)));
            let (name, state) = (single_line(&server.server), server.state);
            format!("{name} {state}{}", why.unwrap_or_default())
        })
        .collect();
    if !servers.is_empty() {
        text.push_str(&format!("\nservers: {}\n", servers.join(", ")));
    }
    for condition in &dry_run.conditions {
        let mark = match condition.state {
            Fitness::Good => '✓',
            Fitness::Warning => '!',
            Fitness::Error => '✗',
        };
        let of = condition.of.as_str().replace('_', " ");
        text.push_str(&format!("{mark} {of}: {}\n", single_line(&condition.detail)));
    }
    text
}

#[cfg(test)]
mod dry_run_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_tool_of_each_task_has_its_answer_and_the_reason() {
        let dry_run = json!({
            "planVersion": 2,
            "tasks": [{"taskId": "t1", "title": "Close", "tools": [
                {"tool": "executeScript", "server": "docker", "answer": "allow", "reason": "the plan names it"},
                {"tool": "close\nIssue", "server": null, "answer": "require_approval", "reason": "mcp.json \u{1b}[2J requires it"},
            ]}],
            "servers": [{"server": "docker", "state": "connected"},
                        {"server": "github", "state": "unavailable", "reason": "needs GITHUB_TOKEN"}],
            "conditions": [{"of": "container_engine", "state": "error", "detail": "no answer: start it"}],
        });
        let dry_run: DryRun = serde_json::from_value(dry_run).unwrap();
        assert_eq!(
            text(&dry_run),
            "plan 2 was not confirmed; nothing has begun

task  tool           answer            why
t1    executeScript  allow             the plan names it
t1    close Issue    require_approval  mcp.json \\u001b[2J requires it

servers: docker connected, github unavailable (needs GITHUB_TOKEN)
✗ container engine: no answer: start it
"
        );
    }
}
