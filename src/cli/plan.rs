//! `gavel plan`: planning sessions. A user gives a goal, a repository and a deadline, and changes the plan until it
//! fits.

mod cancel;
mod conversation;
mod deadline;
mod diff;
mod draft;
mod edit;
mod editor;
mod follow;
mod history;
mod list;
mod outcome;
mod refine;
mod show;
mod start;
mod text;
mod watch;

use super::exit::Exit;
use super::gavel::Gavel;
use super::talk;
use crate::config::Flags;
use crate::domain::ids::{DEFAULT_PROJECT, PlanningSessionId, ProjectId};

/// The agent that plans.
const PLANNER: &str = "planner";

/// The commands of `gavel plan`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make a plan for a goal in a GitHub repository; on a terminal, change it in conversation
    Start(start::Args),
    /// Change a plan in the user's own words; without words, in conversation
    Refine(refine::Args),
    /// Edit a plan as JSON, in an editor or from a file
    Edit(edit::Args),
    /// Show a session with its plan, or one task
    Show(show::Args),
    /// Show what a version of a plan changed
    Diff(diff::Args),
    /// List the versions of a plan: who changed it, when, why and how
    History(history::Args),
    /// List planning sessions, newest first
    List(list::Args),
    /// Cancel a session
    Cancel(cancel::Args),
    /// Watch a plan being made, then show it
    Watch(watch::Args),
}

/// The exit statuses of a session that is followed.
const STATUSES: &str = "\
Exit status: 0 there is a plan, 1 nothing could be done or the plan was not changed, 2 invalid usage, 3 the session \
failed, 4 it was cancelled, 6 a tool call waits for an approval, 7 the deadline passed, 130 interrupted while the \
session continues.";

impl Command {
    pub(super) fn run(&self, flags: &Flags) -> anyhow::Result<Exit> {
        match self {
            Self::Start(args) => talk(args, flags),
            Self::Refine(args) => talk(args, flags),
            Self::Edit(args) => talk(args, flags),
            Self::Show(args) => talk(args, flags),
            Self::Diff(args) => talk(args, flags),
            Self::History(args) => talk(args, flags),
            Self::List(args) => talk(args, flags),
            Self::Cancel(args) => talk(args, flags),
            Self::Watch(args) => talk(args, flags),
        }
    }
}

/// Parses a session id argument.
fn id(text: &str) -> Result<PlanningSessionId, &'static str> {
    PlanningSessionId::parse(text).ok_or("a session's id is a UUID; `gavel plan list` shows them")
}

/// Waits until the MCP servers that planning needs are connected; a remote gavel has connected its own.
async fn connect_servers(gavel: &Gavel) -> anyhow::Result<()> {
    gavel
        .connect_servers_of(&ProjectId::parse(DEFAULT_PROJECT)?, PLANNER)
        .await
}
