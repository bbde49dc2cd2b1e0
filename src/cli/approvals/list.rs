//! `gavel approvals list`: one page of approval requests, then the in-doubt actions.

use super::question;
use crate::app::Work;
use crate::cli::client::{Action, Answer, Client, Query};
use crate::cli::exit::Exit;
use crate::cli::gavel::Where;
use crate::cli::list::{Paging, more};
use crate::cli::output;
use crate::config::Config;

/// Options of `gavel approvals list`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
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
its outcome is unknown; it is never repeated, and a user has to find out whether it happened.";

pub(super) async fn run(args: &Args, config: Option<Config>) -> anyhow::Result<Exit> {
    let answering = args.place.answering(config.as_ref()).await?;
    let gavel = args.place.gavel(config, Work::Read).await?;
    gavel.talk(async |gavel| list(args, gavel, &answering).await).await
}

async fn list(args: &Args, client: &Client, answering: &Where) -> anyhow::Result<Exit> {
    let (query, whose) = (args.paging.query(), args.place.whose_words());
    let doubt = |one: &Answer<Action>| format!("{}\n{}", question::doubt(one), question::settling(one, &args.place));
    let doubt = |all: &[Answer<Action>]| all.iter().map(doubt).collect::<Vec<_>>().join("\n");
    if args.in_doubt {
        let page = client.in_doubt(&query).await?;
        args.paging
            .print_items(&page, &format!("no in-doubt actions{whose}"), doubt)?;
        more(&page, "more in doubt", "");
        return Ok(Exit::Done);
    }
    let pending = client.pending(&query).await?;
    // Below the first page of approval requests, in text output only.
    let doubts = match query.page_token.is_none() && !args.paging.json {
        true => Some(
            client
                .in_doubt(&Query {
                    page_token: None,
                    ..query
                })
                .await?,
        ),
        false => None,
    };
    let request = |one: &Answer<Action>| format!("{}\n{}", question(one), question::answers(one, answering));
    let request = |all: &[Answer<Action>]| all.iter().map(request).collect::<Vec<_>>().join("\n");
    args.paging
        .print_items(&pending, &format!("no approval requests{whose}"), request)?;
    more(&pending, "more", "");
    if let Some(page) = doubts {
        if !pending.items.is_empty() && !page.items.is_empty() {
            output::line("")?;
        }
        args.paging.print_items(&page, "", doubt)?;
        more(&page, "more in doubt", " --in-doubt and");
    }
    Ok(Exit::Done)
}
