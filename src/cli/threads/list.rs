//! `gavel threads list`: one page of threads.

use serde_json::Value;

use super::at;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::runs::{Place, Record, Where};
use crate::cli::table::{clipped, table};
use crate::ports::records::ListQuery;

/// Options of `gavel threads list`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Rows per page, 1 to 1000
    #[arg(long, visible_alias = "page-size", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Continue after the previous page; the other options must be the same
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Print threads as JSON, one per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel threads list --user ann
  gavel threads list --json | jq -r .threadId
  gavel threads list --server http://localhost:8080 --user ann

A remote gavel lists only one user's threads.";

pub(super) async fn run(args: &Args, place: Place) -> anyhow::Result<Exit> {
    let query = ListQuery {
        page_size: args.limit,
        page_token: args.page_token.clone(),
        ..ListQuery::default()
    };
    let record = Record::open(place).await?;
    let page = record.threads(query).await;
    record.close().await;
    let page = page?;
    let threads = page["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
    if args.json {
        for thread in threads {
            output::line(&thread.to_string())?;
        }
    } else if threads.is_empty() {
        output::note(&format!("no threads{}", args.place.whose_words()));
    } else {
        let rows: Vec<_> = threads.iter().map(row).collect();
        output::line(&table(
            &["last (UTC)", "thread", "user", "agent", "state", "begins with"],
            &rows,
        ))?;
    }
    if let Some(token) = page["next_page_token"].as_str() {
        output::note(&format!("more: the same command with --page-token {token}"));
    }
    Ok(Exit::Done)
}

fn row(thread: &Value) -> Vec<String> {
    let text = |field: &str| thread[field].as_str().unwrap_or_default();
    vec![
        at(text("updatedAt")),
        text("threadId").to_owned(),
        clipped(text("userId"), 24),
        clipped(text("agentId"), 32),
        thread["latestRun"]["state"].as_str().unwrap_or("-").to_owned(),
        clipped(text("title"), 60),
    ]
}
