//! `gavel plan execute`: confirms a plan, and watches the work on it.

use super::facts::confirmation;
use super::follow::{Followed, How, Showing, follow, missing, session};
use super::outcome::tell;
use super::{STATUSES, connect_servers, dry_run, id};
use crate::api::planning::{ExecuteBody, Session};
use crate::app::Work;
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
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
    #[command(flatten)]
    place: Where,
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

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let execute = ExecuteBody {
            plan_version: self.plan_version,
            ask_for: self.ask_for.clone(),
            dry_run: self.dry_run,
        };
        connect_servers(gavel, TASK_WORKER).await?;
        if self.dry_run {
            return dry_run::show(gavel, &self.place, self.id, &execute, self.showing.json).await;
        }
        if self.background {
            let Some(begun) = confirmed(gavel, &self.place, self.id, &execute).await? else {
                return Ok(Exit::Interrupted);
            };
            output::line(&begun.session_id.to_string())?;
            if !self.showing.quiet {
                let place = self.place.repeated();
                output::note(&format!("watch it: gavel plan watch{place} {}", self.id));
            }
            return Ok(Exit::Done);
        }
        executed(gavel, &self.place, self.id, &execute, self.showing).await
    }
}

/// Confirms a plan, and follows the work on it to its end.
///
/// # Errors
/// The confirmation is refused, or the session can no longer be read.
pub(super) async fn executed(
    client: &Client,
    place: &Where,
    id: PlanningSessionId,
    execute: &ExecuteBody,
    showing: Showing,
) -> anyhow::Result<Exit> {
    let Some(begun) = confirmed(client, place, id, execute).await? else {
        return Ok(Exit::Interrupted);
    };
    if let Some(confirmation) = confirmation(&begun).filter(|_| !showing.quiet && !showing.events) {
        output::note(&confirmation);
    }
    match follow(client, place, begun, showing, How::BEGUN).await? {
        Followed::Left => Ok(Exit::Interrupted),
        Followed::Waits => {
            if showing.json {
                output::json(&session(client, place, id).await?)?;
            }
            output::note(&format!(
                "session {id} waits for a person, and continues after the answer: gavel plan watch{} {id}",
                place.repeated()
            ));
            Ok(Exit::NeedsApproval)
        }
        Followed::Reached(ended) => tell(&ended, place, showing),
    }
}

/// Sends the confirmation; `None` if the user stopped meanwhile.
async fn confirmed(
    client: &Client,
    place: &Where,
    id: PlanningSessionId,
    execute: &ExecuteBody,
) -> anyhow::Result<Option<Session>> {
    let Some(begun) = unless_stopped(client.execute_plan(id, execute)).await? else {
        output::note(&format!(
            "it is unknown whether the plan was confirmed; `gavel plan show{} {id}` says so",
            place.repeated()
        ));
        return Ok(None);
    };
    begun.map(Some).map_err(|error| missing(error, place, id))
}
