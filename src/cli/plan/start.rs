//! `gavel plan start`, `refine`, `execute`, `watch` and `cancel`.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use chrono_tz::Tz;

use super::follow::{How, failed_refinement, follow, has_open_plan, path, refined, session, tell};
use super::show::version;
use super::text::confirmation;
use super::{STATUSES, connect_servers, conversation, is_conversation, text};
use crate::api::planning::{CancelBody, DryRun, ExecuteBody, Fitness, Session, StartBody};
use crate::cli::client::{Client, Wait};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Work};
use crate::cli::interrupt::{or_stopped, or_stopped_with};
use crate::cli::list::{single_line, table};
use crate::cli::output;
use crate::cli::runs::{Showing, in_background, time_zone};
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::{PLANNER, SessionStatus, TASK_WORKER};
use crate::domain::time::parse_length;

/// Options of `gavel plan start`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{START_EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Start {
    /// The goal, in your own words
    #[arg(value_name = "GOAL", required = true, num_args = 1..)]
    goal: Vec<String>,
    /// The repository, such as https://github.com/OWNER/REPO
    #[arg(long, value_name = "URL")]
    repo: String,
    /// When the work must have ended: 90m, 2h, 1d, or a time such as 2026-12-01T18:00:00+01:00
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: String,
    /// The user's time zone, an IANA name [default: this machine's]
    #[arg(long, value_name = "NAME")]
    time_zone: Option<Tz>,
    /// Do not wait for the plan: print the session's id. Only with --server: without it, this process makes the plan
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
}

const START_EXAMPLES: &str = "\
Examples:
  gavel plan start --repo https://github.com/acme/dates --deadline 2h \"Accept ISO weeks, with tests\"
  gavel plan start --repo https://github.com/acme/dates --deadline 1d --json \"Update the README\" | jq .plan
  gavel plan start --server http://localhost:8080 --repo https://github.com/acme/dates --deadline 90m \"Fix issue 7\"

gavel reads the repository, and proposes a plan; it changes nothing. On a terminal you then say what to change until \
the plan fits; the word execute confirms it, and gavel does the work. Ctrl-C stops watching; the session continues until its deadline. GITHUB_TOKEN (or GITHUB_TOKEN_FILE) \
gives access to the repository.";

impl Talk for Start {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let unknown = format!("the session has begun; `{}` shows it", gavel.command("plan list"));
        let begun = or_stopped_with(begin(self, gavel), &unknown).await?;
        if self.background {
            return in_background(gavel, begun.session_id, "plan watch", self.showing.quiet);
        }
        let session = match follow(gavel, begun, self.showing, How::Begun).await? {
            Ok(session) => session,
            Err(exit) => return Ok(exit),
        };
        let read = text::read_repository(&session).filter(|_| !self.showing.quiet && !self.showing.events);
        if let Some(read) = read {
            output::note(&read);
        }
        match has_open_plan(&session) && is_conversation(self.showing) {
            true => conversation::hold(gavel, session, self.showing).await,
            false => tell(gavel, &session, self.showing),
        }
    }
}

async fn begin(args: &Start, gavel: &Gavel) -> anyhow::Result<Session> {
    let prompt = args.goal.join(" ");
    if prompt.trim().is_empty() {
        return Err(Usage("the goal is blank; say what must be reached".to_owned()).into());
    }
    connect_servers(gavel, PLANNER).await?;
    let new = StartBody {
        prompt,
        repo_url: args.repo.clone(),
        deadline: args.deadline.clone(),
        time_zone: time_zone(args.time_zone),
    };
    gavel.post("v1/sessions", &[], Wait::Created, &new).await
}

/// Options of `gavel plan refine`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{REFINE_EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Refine {
    /// The session
    id: PlanningSessionId,
    /// What to change, in your own words; without it, a conversation begins
    #[arg(value_name = "TEXT", num_args = 0..)]
    text: Vec<String>,
    #[command(flatten)]
    showing: Showing,
}

const REFINE_EXAMPLES: &str = "\
Examples:
  gavel plan refine 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 \"tests first, and leave the README alone\"
  gavel plan refine 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80       a conversation; quit ends it
  gavel plan refine --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 \"split t2\" | jq .planVersion

Tasks that the new version keeps keep their ids. If the refinement fails, the earlier version remains.";

impl Talk for Refine {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let words = self.text.join(" ");
        let is_blank = words.trim().is_empty();
        if is_blank && (!self.text.is_empty() || !is_conversation(self.showing)) {
            return Err(Usage("say what to change, or use a terminal for a conversation".to_owned()).into());
        }
        let before = session(gavel, self.id).await?;
        connect_servers(gavel, PLANNER).await?;
        if is_blank {
            return conversation::hold(gavel, Box::new(before), self.showing).await;
        }
        let planned = match refined(gavel, self.id, &words, self.showing).await? {
            Ok(planned) => planned,
            Err(exit) => return Ok(exit),
        };
        let exit = tell(gavel, &planned, self.showing)?;
        if let Some(failed) = failed_refinement(&planned) {
            return Ok(failed);
        }
        if !self.showing.quiet && planned.plan_version > before.plan_version {
            let version = version(gavel, self.id, planned.plan_version).await?;
            output::note(&text::changes(version.version, &version.changes));
        }
        Ok(exit)
    }
}

/// Options of `gavel plan cancel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = CANCEL_EXAMPLES)]
pub(crate) struct Cancel {
    /// The session
    id: PlanningSessionId,
    /// Why, for the session's record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
}

const CANCEL_EXAMPLES: &str = "\
Examples:
  gavel plan cancel 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan cancel --reason \"done by hand\" 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80

A session that is cancelled cannot be continued. Its plan and its history are kept.";

impl Talk for Cancel {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let session = or_stopped(cancel(gavel, self.id, self.reason.clone())).await?;
        let (id, watch) = (self.id, gavel.command("plan watch"));
        output::answer(self.json, &session, |session| match session.status {
            SessionStatus::Cancelled => format!("session {id} is cancelled"),
            status if status.has_ended() => format!("session {id} had already ended: {status}"),
            _ => format!("session {id} will be cancelled when its work has stopped; `{watch} {id}` shows its end"),
        })
    }
}

/// Cancels a session, and returns its state after that.
pub(super) async fn cancel(client: &Client, id: PlanningSessionId, reason: Option<String>) -> anyhow::Result<Session> {
    client
        .post(&format!("{}/cancel", path(id)), &[], Wait::No, &CancelBody { reason })
        .await
}

/// Options of `gavel plan watch`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{WATCH_EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Watch {
    /// The session
    id: PlanningSessionId,
    /// Continue to watch while the plan waits for its confirmation, until the session has ended
    #[arg(long)]
    to_end: bool,
    #[command(flatten)]
    showing: Showing,
}

const WATCH_EXAMPLES: &str = "\
Examples:
  gavel plan watch 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan watch --to-end --events 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r .type
  gavel plan watch --server http://localhost:8080 --quiet --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .status

It begins with what the session has done since its first plan. It ends when a plan waits for its confirmation, or \
with the session. Each step of a task shows the time left, what the model intends (reason), the call (act) and what the \
model concluded (reflect). When a person must answer, it shows how. Ctrl-C stops watching; the \
session continues.";

impl Talk for Watch {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let session = session(gavel, self.id).await?;
        let how = How::Watches { to_end: self.to_end };
        let followed = follow(gavel, session, self.showing, how).await?;
        followed.map_or_else(Ok, |session| tell(gavel, &session, self.showing))
    }
}

/// The deadline in RFC 3339, of a time or a length from now on. The server has limits of its own.
fn deadline(text: &str) -> Result<String, &'static str> {
    if DateTime::parse_from_rfc3339(text).is_ok() {
        return Ok(text.to_owned());
    }
    let length = parse_length(text).filter(|length| !length.is_zero());
    let at = length.and_then(|length| Utc::now().checked_add_signed(TimeDelta::from_std(length).ok()?));
    let at = at.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
    at.ok_or("give a length such as 90m, 2h, 1h30m or 1d, or a time with its offset such as 2026-12-01T18:00:00+01:00")
}

#[cfg(test)]
mod deadline_tests {
    use super::*;

    #[test]
    fn a_length_and_a_time_are_understood_and_nothing_else() {
        for (given, seconds) in [("2h", 7200), ("1h30m", 5400), ("1d", 86400), ("45s", 45)] {
            let at = DateTime::parse_from_rfc3339(&deadline(given).unwrap()).unwrap();
            let ahead = (at.to_utc() - Utc::now()).num_seconds();
            assert!((seconds - 30..=seconds).contains(&ahead), "{given}: {ahead}");
        }
        let time = "2026-12-01T18:00:00+01:00";
        assert_eq!(deadline(time).as_deref(), Ok(time));
        for invalid in [
            "",
            "2",
            "h",
            "0m",
            "-1h",
            "1w",
            "1ä",
            "tomorrow",
            "2026-12-01T18:00:00",
            "2026-12-01",
            "99999999999999999999h",
            "18446744073709551615d",
        ] {
            assert!(deadline(invalid).is_err(), "{invalid}");
        }
    }
}

/// Options of `gavel plan execute`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXECUTE_EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Execute {
    /// The session
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

const EXECUTE_EXAMPLES: &str = "\
Examples:
  gavel plan execute 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan execute --plan-version 2 --ask-for createPullRequest 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan execute --dry-run 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan execute --server http://localhost:8080 --background 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80

This confirms the plan: its tools may then act on its repository without asking again, and on nothing else. A person \
must approve what the plan does not name, what the policy reserves and what --ask-for names. The plan can no longer be \
refined or edited. Each task ends when a result shows that it is done. A session that was executed before is only \
watched. Ctrl-C stops watching; the work continues until it is done, cancelled, or past the deadline.";

impl Talk for Execute {
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
            return in_background(gavel, begun.session_id, "plan watch", self.showing.quiet);
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
    let followed = follow(gavel, begun, showing, How::Begun).await?;
    followed.map_or_else(Ok, |ended| tell(gavel, &ended, showing))
}

/// Sends the confirmation.
async fn confirmed(gavel: &Gavel, id: PlanningSessionId, execute: &ExecuteBody) -> anyhow::Result<Session> {
    let path = format!("{}/execute", path(id));
    let unknown = format!("the plan was confirmed; `{} {id}` says so", gavel.command("plan show"));
    or_stopped_with(gavel.post(&path, &[], Wait::Begun, execute), &unknown).await
}

const DRY_RUN_HEADS: [&str; 4] = ["task", "tool", "answer", "why"];

/// Shows what would happen; nothing begins.
///
/// # Errors
/// The plan could not be confirmed now.
async fn dry_run(gavel: &Gavel, id: PlanningSessionId, execute: &ExecuteBody, as_json: bool) -> anyhow::Result<Exit> {
    let path = format!("{}/execute", path(id));
    let dry_run: DryRun = gavel.post(&path, &[], Wait::No, execute).await?;
    output::answer(as_json, &dry_run, dry_run_text)
}

/// A line for each tool of each task, one with the servers, and one for each thing that they act on.
fn dry_run_text(dry_run: &DryRun) -> String {
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
        table(&DRY_RUN_HEADS, &rows)
    );
    text.push('\n');
    for server in &dry_run.servers {
        let why = server
            .reason
            .as_deref()
            .map_or_else(String::new, |why| format!(": {why}"));
        let server = format!("server {} is {}{why}", server.server, server.state);
        text.push_str(&format!("{}\n", single_line(&server)));
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
            dry_run_text(&dry_run),
            "plan 2 was not confirmed; nothing has begun

task  tool           answer            why
t1    executeScript  allow             the plan names it
t1    close Issue    require_approval  mcp.json \\u001b[2J requires it

server docker is connected
server github is unavailable: needs GITHUB_TOKEN
✗ container engine: no answer: start it
"
        );
    }
}
