//! `gavel runs`: agents' past and current runs.

mod cancel;
mod follow;
mod list;
mod persons;
mod progress;
mod resume;
mod show;
mod watch;

use std::time::Duration;

pub(super) use self::follow::{OnInterrupt, Showing, asked, follow, is_late, questions};
pub(super) use self::list::project;
pub(super) use self::persons::{Said, answer, is_here};
pub(super) use self::progress::{Progress, Story, newest, time};
pub(super) use self::show::ActionOf;
use super::exit::Exit;
use super::talk;
use crate::config::Flags;
use crate::domain::agent_run::MOST_TIME;
use crate::domain::ids::RunId;

/// The commands of `gavel runs`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the runs of a project, newest first
    List(list::Args),
    /// Show one run with its tool calls, and how to settle its in-doubt actions
    Show(show::Args),
    /// Watch a run until it ends: what it has done so far, and new events
    Watch(watch::Args),
    /// Cancel a run and those it called
    Cancel(cancel::Args),
    /// Continue a paused run
    Resume(resume::Args),
}

/// The exit statuses of a run that is followed to its end.
pub(super) const STATUSES: &str = "\
Exit status: 0 completed, 1 nothing could be done, 2 invalid usage, 3 the run failed, 4 it was \
cancelled, 5 it is paused (a note shows how to resume it), 6 it waits for an approval (a note shows how \
to answer), 130 interrupted while the run continues.";

impl Command {
    pub(super) fn run(&self, flags: &Flags) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => talk(args, flags),
            Self::Show(args) => talk(args, flags),
            Self::Watch(args) => talk(args, flags),
            Self::Cancel(args) => talk(args, flags),
            Self::Resume(args) => talk(args, flags),
        }
    }
}

/// Parses a run id argument.
fn id(text: &str) -> Result<RunId, &'static str> {
    RunId::parse(text).ok_or("a run's id is a UUID; `gavel runs list` shows them")
}

/// Parses `--timeout`.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let most = MOST_TIME.as_secs();
    let seconds = text.parse().ok().filter(|seconds| (1..=most).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("give whole seconds from 1 to {most}"))?;
    Ok(Duration::from_secs(seconds))
}
