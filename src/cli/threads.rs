//! `gavel threads`: the messages of users and agents.

mod list;
mod show;

use clap::Subcommand;

use super::exit::Exit;
use super::gavel::Where;
use crate::config::Config;

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

/// `config` is absent if a remote gavel is used.
pub(super) async fn run(verb: Verb, config: Option<Config>) -> anyhow::Result<Exit> {
    match verb {
        Verb::List(args) => list::run(&args, config).await,
        Verb::Show(args) => show::run(&args, config).await,
    }
}
