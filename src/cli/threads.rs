//! `gavel threads`: the messages of users and agents. As with `gavel runs`, it reads the configured database, or uses a
//! remote gavel with `--server`.

mod list;
mod show;

use clap::Subcommand;

use super::exit::Exit;
use super::runs::Where;
use crate::config::Resolved;

/// The commands of `gavel threads`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List threads, the most recently active first
    List(list::Args),
    /// Show one thread: its messages, approval requests and their results
    Show(show::Args),
}

impl Verb {
    /// Is a remote gavel used?
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

/// `resolved` is absent if a remote gavel is used.
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
