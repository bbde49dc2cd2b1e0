//! `gavel approvals list`: one page of approval requests, then the in-doubt actions.

use super::question;
use crate::api::approvals::{ActionInDoubt, PendingApproval};
use crate::app::Work;
use crate::cli::client::Query;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::{Paging, more};
use crate::cli::output;

/// Options of `gavel approvals list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only in-doubt actions
    #[arg(long)]
    in_doubt: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel approvals list
  gavel approvals list --json | jq -r .approvalId
  gavel approvals list --in-doubt --json | jq -r .actionId
  gavel approvals list --server https://gavel.internal --user ann

Each is shown in full: an answer applies to exactly these arguments. An action is in doubt if it was sent and \
its outcome is unknown. gavel never repeats it: a user has to find out whether it happened.";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let answering = gavel.answering(&self.place).await?;
        let (query, whose) = (self.paging.query(), self.place.whose_words());
        let in_doubt =
            |one: &ActionInDoubt| format!("{}\n{}", question::in_doubt(one), question::settling(one, &self.place));
        let in_doubt = |all: &[ActionInDoubt]| all.iter().map(in_doubt).collect::<Vec<_>>().join("\n");
        if self.in_doubt {
            let page = gavel.in_doubt(&query).await?;
            self.paging
                .print_items(&page, &format!("no in-doubt actions{whose}"), in_doubt)?;
            more(&page, "more in doubt", "");
            return Ok(Exit::Done);
        }
        let pending = gavel.pending(&query).await?;
        // Below the first page of approval requests, in text output only.
        let unsettled = match query.page_token.is_none() && !self.paging.json {
            true => Some(
                gavel
                    .in_doubt(&Query {
                        page_token: None,
                        ..query
                    })
                    .await?,
            ),
            false => None,
        };
        let request = |one: &PendingApproval| {
            let one = one.into();
            format!("{}\n{}", question(&one), question::answers(&one, &answering))
        };
        let request = |all: &[PendingApproval]| all.iter().map(request).collect::<Vec<_>>().join("\n");
        self.paging
            .print_items(&pending, &format!("no approval requests{whose}"), request)?;
        more(&pending, "more", "");
        if let Some(page) = unsettled {
            if !pending.items.is_empty() && !page.items.is_empty() {
                output::line("")?;
            }
            self.paging.print_items(&page, "", in_doubt)?;
            more(&page, "more in doubt", " --in-doubt and");
        }
        Ok(Exit::Done)
    }
}
