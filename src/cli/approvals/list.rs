//! `gavel approvals list`: one page of approval requests, then the in-doubt actions.

use serde_json::Value;

use super::question;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::runs::{Place, Record, Where};
use crate::ports::records::ListQuery;

/// Options of `gavel approvals list`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Approval requests per page, 1 to 1000
    #[arg(long, visible_alias = "page-size", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Continue after the previous page
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Only in-doubt actions
    #[arg(long)]
    in_doubt: bool,
    /// Print approval requests as JSON, one per line; with --in-doubt, the in-doubt actions
    #[arg(long)]
    json: bool,
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

pub(super) async fn run(args: &Args, place: Place) -> anyhow::Result<Exit> {
    let query = |page_token: Option<&String>| ListQuery {
        page_size: args.limit,
        page_token: page_token.cloned(),
        ..ListQuery::default()
    };
    let token = args.page_token.as_ref();
    let answering = args.place.answering(&place).await?;
    let record = Record::open(place).await?;
    let pages = async {
        let questions = match args.in_doubt {
            true => None,
            false => Some(record.pending(query(token)).await?),
        };
        let doubts = match args.in_doubt {
            true => Some(record.in_doubt(query(token)).await?),
            // Below the first page of approval requests, in text output only.
            false if token.is_none() && !args.json => Some(record.in_doubt(query(None)).await?),
            false => None,
        };
        anyhow::Ok((questions, doubts))
    };
    let pages = pages.await;
    record.close().await;
    let (questions, doubts) = pages?;
    let whose = args.place.whose_words();
    let mut told = false;
    if let Some(page) = questions {
        let text = |one: &Value| format!("{}\n{}", question(one), question::answers(one, &answering));
        told = tell(args, &page, "approvals", &format!("no approval requests{whose}"), text)?;
        more(&page, "more", "");
    }
    if let Some(page) = doubts {
        let text = |one: &Value| format!("{}\n{}", question::doubt(one), question::settling(one, &args.place));
        if told && page["actions"][0].is_object() {
            output::line("")?;
        }
        // The empty list is reported only if in-doubt actions were requested.
        let none = if args.in_doubt {
            format!("no in-doubt actions{whose}")
        } else {
            String::new()
        };
        tell(args, &page, "actions", &none, text)?;
        let flag = if args.in_doubt { "" } else { " --in-doubt and" };
        more(&page, "more in doubt", flag);
    }
    Ok(Exit::Done)
}

/// Prints the page; returns whether it has entries.
fn tell(args: &Args, page: &Value, list: &str, none: &str, text: impl Fn(&Value) -> String) -> anyhow::Result<bool> {
    let all = page[list].as_array().map(Vec::as_slice).unwrap_or_default();
    if args.json {
        for one in all {
            output::line(&one.to_string())?;
        }
    } else if !all.is_empty() {
        let texts: Vec<_> = all.iter().map(text).collect();
        output::line(&texts.join("\n"))?;
    } else if !none.is_empty() {
        output::note(none);
    }
    Ok(!all.is_empty())
}

fn more(page: &Value, what: &str, flag: &str) {
    if let Some(token) = page["next_page_token"].as_str() {
        output::note(&format!("{what}: the same command with{flag} --page-token {token}"));
    }
}
