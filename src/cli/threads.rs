//! `gavel threads`: the messages of users and agents.

mod list;
mod show;

use clap::Subcommand;

use super::exit::Exit;
use super::talk;
use crate::config::Flags;

/// The commands of `gavel threads`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List threads, the most recently active first
    List(list::Args),
    /// Show one thread: its messages, approval requests and their results
    Show(show::Args),
}

impl Command {
    pub(super) fn run(&self, flags: &Flags) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => talk(args, flags),
            Self::Show(args) => talk(args, flags),
        }
    }
}
