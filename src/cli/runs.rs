//! `gavel runs`: what agents have done and are doing. What only reads looks at the database of the configuration and
//! starts nothing; what acts does so in this process. With `--server`, both ask a gavel that runs elsewhere.

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

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List the runs of a project, newest first
    List(list::Args),
    /// Show one run with its tool calls, and what is to be done about calls in doubt
    Show(show::Args),
    /// Watch a run until it is over: what it has done so far, and what comes
    Watch(watch::Args),
    /// Cancel a run and those it called
    Cancel(cancel::Args),
    /// Go on with a paused run, as a run of its own
    Resume(resume::Args),
}

/// The exit statuses of a run that is followed to its end.
pub(super) const STATUSES: &str = "\
Exit status: 0 completed, 1 nothing could be done, 2 wrong usage, 3 the run failed, 4 it was \
cancelled, 5 it is paused (how to resume it is told), 6 it waits for a person (how to answer is told), \
130 interrupted while the run goes on.";

impl Verb {
    /// Is a gavel elsewhere asked?
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

/// `resolved` is absent where a gavel elsewhere is asked.
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

/// What the verbs take as a run.
fn id(text: &str) -> Result<RunId, &'static str> {
    RunId::parse(text).ok_or("a run's id is a UUID; `gavel runs list` shows them")
}

/// The id in a run's document.
fn id_of(run: &serde_json::Value) -> anyhow::Result<RunId> {
    let id = run.get("id").and_then(serde_json::Value::as_str).and_then(RunId::parse);
    id.context("the answer names no run")
}
