//! `gavel runs`: agents' past and current runs. Commands that only read use the configured database and start nothing;
//! commands that act do so in this process. With `--server`, both use a remote gavel.

mod cancel;
mod events;
mod follow;
mod list;
mod persons;
mod place;
mod progress;
mod record;
mod resume;
mod service;
mod show;
mod watch;

use anyhow::Context;

pub(super) use self::follow::{OnInterrupt, Showing, follow};
pub(super) use self::list::project;
pub(super) use self::place::{Place, Where, timeout};
pub(super) use self::record::Record;
pub(super) use self::service::{NewRun, Service};
use super::exit::Exit;
use crate::config::Resolved;
use crate::domain::ids::RunId;

/// The commands of `gavel runs`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List the runs of a project, newest first
    List(list::Args),
    /// Show one run with its tool calls, and how to settle its in-doubt actions
    Show(show::Args),
    /// Watch a run until it ends: what it has done so far, and new events
    Watch(watch::Args),
    /// Cancel a run and those it called
    Cancel(cancel::Args),
    /// Continue a paused run, as a new run
    Resume(resume::Args),
}

/// The exit statuses of a run that is followed to its end.
pub(super) const STATUSES: &str = "\
Exit status: 0 completed, 1 nothing could be done, 2 invalid usage, 3 the run failed, 4 it was \
cancelled, 5 it is paused (a note shows how to resume it), 6 it waits for an approval (a note shows how \
to answer), 130 interrupted while the run continues.";

impl Verb {
    /// Is a remote gavel used?
    pub(super) fn is_remote(&self) -> bool {
        self.place().server.is_some()
    }

    fn place(&self) -> &Where {
        match self {
            Self::List(args) => &args.place,
            Self::Show(args) => &args.place,
            Self::Watch(args) => &args.place,
            Self::Cancel(args) => &args.place,
            Self::Resume(args) => &args.place,
        }
    }
}

/// `resolved` is absent if a remote gavel is used.
pub(super) async fn run(verb: Verb, resolved: Option<Resolved>) -> anyhow::Result<Exit> {
    let place = verb.place().with(resolved.map(|resolved| resolved.config))?;
    match verb {
        Verb::List(args) => list::run(&args, place).await,
        Verb::Show(args) => show::run(&args, place).await,
        Verb::Watch(args) => watch::run(&args, place).await,
        Verb::Cancel(args) => cancel::run(&args, place).await,
        Verb::Resume(args) => resume::run(args, place).await,
    }
}

/// Parses a run id argument.
fn id(text: &str) -> Result<RunId, &'static str> {
    RunId::parse(text).ok_or("a run's id is a UUID; `gavel runs list` shows them")
}

/// The id in a run's document.
fn id_of(run: &serde_json::Value) -> anyhow::Result<RunId> {
    let id = run.get("id").and_then(serde_json::Value::as_str).and_then(RunId::parse);
    id.context("the answer has no run id")
}
