//! `gavel runs`: agents' past and current runs.

pub(super) mod follow;
mod progress;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use chrono_tz::Tz;
use serde::Serialize;
use serde_json::json;

pub(super) use self::follow::{OnInterrupt, Showing, Watched, actions, follow, unanswered};
pub(super) use self::progress::{Progress, time};
use crate::api::approvals::ResolveBody;
use crate::api::decisions::{DecisionDetail, ToolInvocation};
use crate::api::runs::{AgentRun, RunPage};
use crate::api::threads::ActionAnswer;
use crate::cli::approvals::{Question, question};
use crate::cli::client::{Client, Query, Refused, Wait, parameters, segment};
use crate::cli::decisions::{call, decision, fields};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where, Work};
use crate::cli::interrupt::or_stopped;
use crate::cli::lines::Lines;
use crate::cli::list::{self, Column, Paging, at, clipped};
use crate::cli::{commands, output};
use crate::domain::action;
use crate::domain::agent_run::{MOST_TIME, RunStatus};
use crate::domain::ids::{ActionId, DEFAULT_PROJECT, ProjectId, RunId};

commands! {
    /// The commands of `gavel runs`.
    Command {
        /// List the runs of a project, newest first
        List(List),
        /// Show one run with its tool calls, and how to settle its in-doubt actions
        Show(Show),
        /// Watch a run until it ends: what it has done so far, and new events
        Watch(Watch),
        /// Cancel a run and those it called
        Cancel(Cancel),
        /// Continue a paused run
        Resume(Resume),
    }
}

/// The exit statuses of a run that is followed to its end.
pub(super) const STATUSES: &str = "\
Exit status: 0 completed, 1 nothing could be done, 2 invalid usage, 3 the run failed, 4 it was \
cancelled, 5 it is paused (a note shows how to resume it), 6 it waits for an approval (a note shows how \
to answer), 130 interrupted while the run continues.";

/// The path of a run.
fn path(run: RunId) -> String {
    format!("api/runs/{run}")
}

/// Requests the cancellation of a run, and returns its state after that.
async fn cancel(client: &Client, run: RunId) -> anyhow::Result<AgentRun> {
    client
        .post(&format!("{}/cancel", path(run)), &[], Wait::No, &json!({}))
        .await
}

/// The query with the longest time that a run may take.
pub(super) fn with_timeout(most: Option<Duration>) -> Vec<(&'static str, String)> {
    parameters([("timeout_s", most.map(|most| most.as_secs().to_string()))])
}

/// Parses `--timeout`.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let most = MOST_TIME.as_secs();
    let seconds = text.parse().ok().filter(|seconds| (1..=most).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("give whole seconds from 1 to {most}"))?;
    Ok(Duration::from_secs(seconds))
}

/// Options of `gavel runs list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(super) struct List {
    /// Only this agent's runs
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only runs with this status
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(RunStatus::ALL.iter().map(|status| status.as_str())))]
    status: Option<String>,
    /// The project of the agents
    #[arg(long, default_value = DEFAULT_PROJECT, value_name = "NAME")]
    project: ProjectId,
    #[command(flatten)]
    paging: Paging,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel runs list --status paused
  gavel runs list --agent codebase_investigator --json | jq -r .summary
  gavel runs list --server http://localhost:8080 --user ann

Runs called by another run are not listed; `gavel runs watch` shows them under their caller.";

const COLUMNS: &[Column<AgentRun>] = &[
    ("at (UTC)", |run| at(run.created_at)),
    ("run", |run| run.id.to_string()),
    ("agent", |run| clipped(&run.agent_id, 32)),
    ("status", |run| match run.attempts.len() {
        0 => run.status.to_string(),
        1 => format!("{}, resumed", run.status),
        times => format!("{}, resumed {times} times", run.status),
    }),
    ("steps", |run| run.steps.to_string()),
    ("time", |run| run.duration_ms.map_or_else(|| "-".to_owned(), time)),
    ("result", |run| {
        // An error matters more than the summary so far.
        let error = run.error_message.as_deref().filter(|error| !error.is_empty());
        clipped(error.or(run.summary.as_deref()).unwrap_or_default(), 60)
    }),
];

impl Talk for List {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let query = Query {
            filter: list::filter(&[("agent_id", &self.agent), ("status", &self.status)]),
            ..self.paging.query()
        };
        let path = format!("api/projects/{}/runs", segment(self.project.as_str()));
        let page = gavel.page::<RunPage, _>(&path, &query).await?;
        self.paging.print(&page, "no runs", COLUMNS)
    }
}

/// Options of `gavel runs show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
pub(super) struct Show {
    /// The run
    id: RunId,
    /// As JSON: the run, with its tool_calls and actions
    #[arg(long)]
    json: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  gavel runs show 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs show --json 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .output

Tool calls come from the decision log: after the run has ended all of them, before that only those \
that may have had an effect.";

impl Talk for Show {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let answering = gavel.answering().await?;
        let run: AgentRun = gavel.get(&path(self.id)).await?;
        let decision = decision(gavel, self.id.decision()).await?;
        let actions = actions(gavel, self.id).await?;
        let user_id = decision.as_ref().map(|decision| decision.decision.user_id.as_str());
        let with_user = |action| ActionOf {
            user_id,
            run_id: None,
            action,
        };
        let whole = Whole {
            of: &run,
            tool_calls: decision.as_ref().map(|decision| &decision.tool_calls),
            actions: actions.iter().map(with_user).collect(),
        };
        output::answer(self.json, &whole, |_| {
            show_text(&run, decision.as_ref(), &actions, &answering)
        })
    }
}

/// A run with its calls and actions.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    of: &'a AgentRun,
    tool_calls: Option<&'a Vec<ToolInvocation>>,
    actions: Vec<ActionOf<'a>>,
}

/// An action, with what the routes of runs do not repeat for each: its user and the run whose actions were read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActionOf<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<RunId>,
    #[serde(flatten)]
    pub(crate) action: &'a ActionAnswer,
}

/// The fields in order, the calls, and the next steps.
fn show_text(run: &AgentRun, decision: Option<&DecisionDetail>, actions: &[ActionAnswer], place: &Where) -> String {
    // Steps and tokens are counted at the run's end.
    let left_out: &[&str] = match run.completed_at {
        Some(_) => &["in_doubt"],
        None => &["in_doubt", "steps", "usage"],
    };
    let mut text = fields(run, left_out);
    match decision {
        Some(decision) => decision.tool_calls.iter().for_each(|one| text.push_str(&call(one))),
        None => text.push_str("\nyou have no access to its tool calls\n"),
    }
    let user = decision.map(|decision| decision.decision.user_id.as_str());
    for action in actions {
        text.push_str(&format!("\n{}", follow::action(run, action, user, place)));
    }
    let next = follow::next(run, place);
    if !next.is_empty() {
        text.push_str(&format!("\n{}\n", next.join("\n")));
    }
    text
}

/// Options of `gavel runs cancel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = CANCEL_EXAMPLES)]
pub(super) struct Cancel {
    /// The run
    id: RunId,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

const CANCEL_EXAMPLES: &str = "\
Examples:
  gavel runs cancel 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs cancel --server http://localhost:8080 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80

A run that a worker executes ends within seconds, when its worker sees the cancellation. A run without a worker \
ends when the next `gavel serve` resumes it. Completed actions are not undone. A run that has ended \
does not change.";

impl Talk for Cancel {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let run = or_stopped(cancel(gavel, self.id)).await?;
        let (id, watch) = (self.id, gavel.command("runs watch"));
        output::answer(self.json, &run, |run| match run.status {
            RunStatus::Cancelled => format!("run {id} is cancelled"),
            status if status.has_ended() => format!("run {id} had already ended: {status}"),
            _ => format!(
                "run {id} will be cancelled by its worker, or by the next `gavel serve`; `{watch} {id}` shows its end"
            ),
        })
    }
}

/// Options of `gavel runs resume`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{RESUME_EXAMPLES}\n\n{STATUSES}"))]
pub(super) struct Resume {
    /// The run: a paused one, or one whose processes were lost
    id: RunId,
    /// The outcome of an in-doubt action: happened or did_not_happen (repeatable)
    #[arg(long, value_name = "ACTION=WHAT", value_parser = settled)]
    settled: Vec<(ActionId, bool)>,
    /// Overrides the definition's time limit
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Do not wait for the end: print the run's id. Only with --server: without it, this process executes the run
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  gavel runs resume 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs resume 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 --timeout 600
  gavel runs resume 0198c2b5-… --settled 0198c2b6-…=did_not_happen

The run continues with a fresh budget of steps and time. Each in-doubt action must be settled first: say \
whether it had its effect, and the agent continues with that. Ctrl-C cancels the run and waits for its end; a second Ctrl-C stops waiting.";

fn settled(text: &str) -> Result<(ActionId, bool), String> {
    let allowed = "give ACTION=happened or ACTION=did_not_happen; `gavel runs show` lists the in-doubt actions";
    let (action, what) = text.split_once('=').ok_or(allowed)?;
    let action = ActionId::parse(action).ok_or(allowed)?;
    match what {
        "happened" => Ok((action, true)),
        "did_not_happen" => Ok((action, false)),
        _ => Err(allowed.to_owned()),
    }
}

impl Talk for Resume {
    const WORK: Work = Work::Act;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let mut settled = BTreeMap::new();
        for (action, happened) in &self.settled {
            if settled
                .insert(*action, *happened)
                .is_some_and(|before| before != *happened)
            {
                return Err(Usage(format!("--settled gives both outcomes for {action}; give one")).into());
            }
        }
        let (path, query) = (format!("{}/resume", path(self.id)), with_timeout(self.timeout));
        let body = json!({ "settled": settled });
        let run = match or_stopped(gavel.post::<AgentRun>(&path, &query, Wait::Begun, &body)).await {
            Err(error) if Refused::has_code(&error, "calls_in_doubt") => {
                let run = gavel.get(&self::path(self.id)).await?;
                for line in follow::next(&run, &gavel.place) {
                    output::note(&line);
                }
                return Err(Usage("give the outcome of each in-doubt action with --settled".to_owned()).into());
            }
            resumed => resumed?,
        };
        if self.background {
            return in_background(gavel, run.id, "runs watch", self.showing.quiet);
        }
        follow(gavel, run.id, self.showing, OnInterrupt::Cancels, run.attempts.len()).await
    }
}

/// Options of `gavel runs watch`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{WATCH_EXAMPLES}\n\n{STATUSES}"))]
pub(super) struct Watch {
    /// The run
    id: RunId,
    #[command(flatten)]
    showing: Showing,
}

const WATCH_EXAMPLES: &str = "\
Examples:
  gavel runs watch 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs watch --server http://localhost:8080 --events 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .type

It begins with what the run has done so far. Ctrl-C stops watching; the run continues.";

impl Talk for Watch {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        follow(gavel, self.id, self.showing, OnInterrupt::Leaves, 0).await
    }
}

/// Prints the id of what begins in the background, and how to watch it.
pub(super) fn in_background(gavel: &Gavel, id: impl Display, watch: &str, quiet: bool) -> anyhow::Result<Exit> {
    output::line(&id.to_string())?;
    if !quiet {
        output::note(&format!("watch it: {} {id}", gavel.command(watch)));
    }
    Ok(Exit::Done)
}

/// The name of the user's time zone: as given, or that of this machine, if it has one.
pub(super) fn time_zone(given: Option<Tz>) -> Option<String> {
    let own = || iana_time_zone::get_timezone().ok()?.parse().ok();
    given.or_else(own).map(|zone: Tz| zone.name().to_owned())
}

/// Is a user at the terminal?
pub(super) fn is_here() -> bool {
    std::io::stdin().is_terminal() && output::person_reads_notes()
}

/// Asks until there is an answer; `None` if the user answers later.
async fn answer(one: &Question<'_>) -> anyhow::Result<Option<ResolveBody>> {
    output::note(&format!("\n{}", question(one)));
    // Text typed before the request was shown does not answer it.
    rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush)
        .context("the terminal's input cannot be discarded")?;
    let prompt = "Run it? [y]es, [n]o (a reason may follow), [l]ater: ";
    let (decision, reason) = match Lines::new().choose(prompt, &["yes", "no", "later"]).await? {
        Some(("yes", reason)) => (action::Resolution::ApproveOnce, reason),
        Some(("no", reason)) => (action::Resolution::Reject, reason),
        _ => return Ok(None),
    };
    Ok(Some(ResolveBody {
        approval_id: one.approval,
        decision,
        reason: Some(reason).filter(|reason| !reason.is_empty()),
    }))
}
