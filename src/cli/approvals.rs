//! `gavel approvals`: what waits for a person's leave, their answers, calls in doubt, and leave for good. As with `gavel runs`, what only reads
//! looks at the database of the configuration; an answer is acted on in this process, and so is refused while another gavel has
//! that database, unless `--here` says so. With `--server`, both ask a gavel that runs elsewhere.

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

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List what waits for a person and what is in doubt, the oldest first, with everything that an answer needs
    List(list::Args),
    /// Approve a call: it runs, once, with exactly the arguments that are shown
    Approve(answer::Approve),
    /// Reject a call: it does not run
    Reject(answer::Reject),
    /// Say of a call in doubt whether it had its effect
    Settle(settle::Args),
    /// List leave that was given for good
    Grants(grants::Args),
    /// Take leave for good back
    Revoke(grants::Revoke),
}

impl Verb {
    /// Is a gavel elsewhere asked?
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

/// `resolved` is absent where a gavel elsewhere is asked.
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

/// What the verbs take as an approval.
fn approval(text: &str) -> Result<ApprovalId, &'static str> {
    ApprovalId::parse(text).ok_or("an approval's id is a UUID; `gavel approvals list` shows them")
}
