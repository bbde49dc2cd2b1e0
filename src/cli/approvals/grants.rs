//! `gavel approvals grants` and `revoke`: list and revoke grants.

use super::not_found;
use crate::api::approvals::Grant;
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::list::{Paging, at, more, rows};
use crate::cli::output;
use crate::cli::table::clipped;
use crate::domain::ids::GrantId;

/// Options of `gavel approvals grants`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    pub(super) place: Where,
}

/// Options of `gavel approvals revoke`.
#[derive(Debug, clap::Args)]
pub(crate) struct Revoke {
    /// The grant; it no longer applies to any call that has not been checked yet
    #[arg(value_parser = grant)]
    id: GrantId,
    #[command(flatten)]
    pub(super) place: Where,
}

fn grant(text: &str) -> Result<GrantId, &'static str> {
    GrantId::parse(text).ok_or("a grant's id is a UUID; `gavel approvals grants` shows them")
}

const HEADS: [&str; 8] = [
    "grant",
    "user",
    "tool",
    "used",
    "given by",
    "given",
    "state",
    "recipients",
];

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let answering = gavel.answering(&self.place).await?;
        let page = gavel.grants(&self.paging.query()).await?;
        self.paging
            .print_items(&page, "there are no grants", |grants| rows(&HEADS, grants, row))?;
        let valid = page.items.iter().find(|grant| grant.revoked_at.is_none());
        if let Some(valid) = valid.filter(|_| !self.paging.json) {
            let place = answering.for_call_of(Some(&valid.user_id)).repeated();
            let id = &valid.grant_id;
            output::note(&format!("to revoke a grant: gavel approvals revoke{place} {id}"));
        }
        more(&page, "more", "");
        Ok(Exit::Done)
    }
}

fn row(grant: &Grant) -> Vec<String> {
    let recipients = grant.recipients_by_argument.by_argument().map(|(argument, addresses)| {
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        format!("{argument}: {}", addresses.join(", "))
    });
    vec![
        grant.grant_id.to_string(),
        clipped(&grant.user_id, 24),
        clipped(&grant.tool, 32),
        grant.uses.to_string(),
        clipped(&grant.created_by, 32),
        at(grant.created_at),
        match grant.revoked_at {
            Some(when) => format!("revoked {}", at(when)),
            None => "counts".to_owned(),
        },
        // Not clipped: the user must see all that the grant covers.
        recipients.collect::<Vec<_>>().join("; "),
    ]
}

impl Talk for Revoke {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let Some(revoked) = unless_stopped(gavel.revoke(self.id)).await? else {
            return Ok(Exit::Interrupted);
        };
        let none = "this tenant and user have no such active grant; `gavel approvals grants` lists the grants";
        revoked.map_err(|error| not_found(error, none))?;
        output::line(&format!("grant {} is revoked", self.id))?;
        Ok(Exit::Done)
    }
}
