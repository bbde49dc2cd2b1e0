//! `gavel plan`: planning sessions. A user gives a goal, a repository and a deadline, changes the plan until it fits,
//! confirms it, and watches the work on it.

mod conversation;
mod edit;
mod follow;
mod show;
mod start;
mod text;

pub(super) use self::text::{changes, length, reflection};
use crate::cli::gavel::Gavel;
use crate::cli::runs::{Showing, is_here};
use crate::cli::{commands, output};
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId};

commands! {
    /// The commands of `gavel plan`.
    Command {
        /// Make a plan for a goal in a GitHub repository; on a terminal, change it in conversation
        Start(start::Start),
        /// Change a plan in the user's own words; without words, in conversation
        Refine(start::Refine),
        /// Edit a plan as JSON, in an editor or from a file
        Edit(edit::Args),
        /// Confirm a plan, and watch the work on it to its end
        Execute(start::Execute),
        /// Show a session with its plan, or one task with its steps
        Show(show::Show),
        /// Show what a version of a plan changed
        Diff(show::Diff),
        /// List the versions of a plan: who changed it, when, why and how
        History(show::History),
        /// List planning sessions, newest first
        List(show::List),
        /// Cancel a session
        Cancel(start::Cancel),
        /// Watch a session: its plan being made, or the work on it
        Watch(start::Watch),
        /// List the actions of the work on a plan
        Log(show::Log),
    }
}

/// The exit statuses of a session that is followed.
const STATUSES: &str = "\
Exit status: 0 there is a plan, or its work is completed; 1 nothing could be done or the plan was not changed, 2 invalid \
usage, 3 the session failed, 4 it was cancelled, 6 it waits for a person (a note shows how to answer), 7 the deadline \
passed, 130 interrupted while the session continues.";

/// Waits until the MCP servers that an agent of planning needs are connected; a remote gavel has connected its own.
async fn connect_servers(gavel: &Gavel, agent: &str) -> anyhow::Result<()> {
    gavel
        .connect_servers_of(&ProjectId::parse(DEFAULT_PROJECT)?, agent)
        .await
}

/// Whether a user at the terminal reads the plan, and can answer.
fn is_conversation(showing: Showing) -> bool {
    !showing.json && !showing.events && is_here() && output::answers_are_shown()
}
