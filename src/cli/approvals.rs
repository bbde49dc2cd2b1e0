//! `gavel approvals`: approval requests and their answers, in-doubt actions, and grants. As with `gavel runs`, commands
//! that only read use the configured database. An answer is processed in this process, so it is rejected while another
//! gavel uses that database, unless `--here` is given. With `--server`, both use a remote gavel.

mod answer;
mod grants;
mod list;
mod question;
mod settle;

use clap::Subcommand;

pub(super) use self::question::{answers, question};
use super::exit::Exit;
use super::runs::Where;
use crate::config::Resolved;
use crate::domain::ids::ApprovalId;

/// The commands of `gavel approvals`.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
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

impl Verb {
    /// Is a remote gavel used?
    pub(super) fn is_remote(&self) -> bool {
        self.place().server.is_some()
    }

    fn place(&self) -> &Where {
        match self {
            Self::List(args) => &args.place,
            Self::Approve(args) => &args.place,
            Self::Reject(args) => &args.place,
            Self::Settle(args) => &args.place,
            Self::Grants(args) => &args.place,
            Self::Revoke(args) => &args.place,
        }
    }
}

/// `resolved` is absent if a remote gavel is used.
pub(super) async fn run(verb: Verb, resolved: Option<Resolved>) -> anyhow::Result<Exit> {
    let place = verb.place().with(resolved.map(|resolved| resolved.config))?;
    match verb {
        Verb::List(args) => list::run(&args, place).await,
        Verb::Approve(args) => answer::approve(args, place).await,
        Verb::Reject(args) => answer::reject(args, place).await,
        Verb::Settle(args) => settle::run(&args, place).await,
        Verb::Grants(args) => grants::run(&args, place).await,
        Verb::Revoke(args) => grants::revoke(&args, place).await,
    }
}

/// Parses an approval id argument.
fn approval(text: &str) -> Result<ApprovalId, &'static str> {
    ApprovalId::parse(text).ok_or("an approval's id is a UUID; `gavel approvals list` shows them")
}
