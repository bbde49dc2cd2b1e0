//! `gavel threads`: what people and agents have said to each other. As with `gavel runs`, it looks at the database of the
//! configuration, or with `--server` asks a gavel that runs elsewhere.

mod list;
mod show;

use clap::Subcommand;

use super::exit::Exit;
use super::runs::Where;
use crate::config::Resolved;

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List threads, the latest active first
    List(list::Args),
    /// Show one thread: what was said, what was asked, and what became of it
    Show(show::Args),
}

impl Verb {
    /// Is a gavel elsewhere asked?
    pub(super) fn is_remote(&self) -> bool {
        self.place().server.is_some()
    }

    fn place(&self) -> &Where {
        match self {
            Self::List(args) => &args.place,
            Self::Show(args) => &args.place,
        }
    }
}

/// `resolved` is absent where a gavel elsewhere is asked.
pub(super) async fn run(verb: Verb, resolved: Option<Resolved>) -> anyhow::Result<Exit> {
    let place = verb.place().with(resolved.map(|resolved| resolved.config))?;
    match verb {
        Verb::List(args) => list::run(&args, place).await,
        Verb::Show(args) => show::run(&args, place).await,
    }
}

/// An RFC 3339 time to the second.
pub(super) fn at(time: &str) -> String {
    time.chars().take(19).collect::<String>().replace('T', " ")
}
