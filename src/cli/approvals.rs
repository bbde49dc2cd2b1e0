//! `gavel approvals`: approval requests and their answers, in-doubt actions, and grants. Without `--server` the run
//! continues in this process, so an answer is rejected while another gavel uses the database, unless `--here` is given.

mod answer;
mod grants;
mod list;
mod question;
mod settle;

use clap::Subcommand;

pub(super) use self::question::{Question, answers, question, settles};
use super::client::Refused;
use super::exit::Exit;
use super::gavel::Where;
use super::talk;
use crate::config::Flags;
use crate::domain::ids::ApprovalId;

/// The commands of `gavel approvals`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List approval requests and in-doubt actions, oldest first, with all details that an answer needs
    List(list::Args),
    /// Approve a call: it runs once, with exactly the arguments shown
    Approve(answer::Approve),
    /// Reject a call: it does not run
    Reject(answer::Reject),
    /// Say whether an in-doubt action had its effect
    Settle(settle::Args),
    /// List grants
    Grants(grants::Args),
    /// Revoke a grant
    Revoke(grants::Revoke),
}

impl Command {
    pub(super) fn run(&self, flags: &Flags) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => talk(args, flags),
            Self::Approve(args) => talk(args, flags),
            Self::Reject(args) => talk(args, flags),
            Self::Settle(args) => talk(args, flags),
            Self::Grants(args) => talk(args, flags),
            Self::Revoke(args) => talk(args, flags),
        }
    }
}

/// In place of a server's words that there is no such object: which, and where to look.
fn not_found(error: anyhow::Error, words: &str) -> anyhow::Error {
    match Refused::in_error(&error) {
        Some(refused) if refused.is_not_found() => anyhow::anyhow!("{words}"),
        _ => error,
    }
}

/// There is no such approval request or action.
fn no_action(place: &Where) -> String {
    let whose = place.whose_words();
    format!("there is no such approval request or action{whose}; `gavel approvals list` lists them")
}

/// Parses an approval id argument.
fn approval(text: &str) -> Result<ApprovalId, &'static str> {
    ApprovalId::parse(text).ok_or("an approval's id is a UUID; `gavel approvals list` shows them")
}
