//! `gavel decisions`: the decision log, read only.

mod list;
mod show;
mod tail;

use super::exit::Exit;
use super::talk;
use crate::api::decisions::DecisionPage;
use crate::api::filter::Listed;
use crate::config::Flags;

pub(super) use self::show::{call, fields};

/// The commands of `gavel decisions`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List decisions, newest first
    List(list::Args),
    /// Show one decision with its tool calls
    Show(show::Args),
    /// Print new decisions as they are made
    Tail(tail::Args),
}

/// How a filter is written.
fn filters() -> String {
    format!(
        "A filter is FIELD OP \"VALUE\", joined by AND. Fields: {}. Operators: = != < <= > >=. A * at the end of a value \
         matches every ending.",
        DecisionPage::fields()
    )
}

impl Command {
    pub(super) fn run(&self, flags: &Flags) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => talk(args, flags),
            Self::Show(args) => talk(args, flags),
            Self::Tail(args) => talk(args, flags),
        }
    }
}
