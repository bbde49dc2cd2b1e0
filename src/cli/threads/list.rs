//! `gavel threads list`: one page of threads.

use crate::app::Work;
use crate::cli::client::{Answer, ThreadSummary};
use crate::cli::exit::Exit;
use crate::cli::gavel::Where;
use crate::cli::list::{Paging, at};
use crate::cli::table::{clipped, table};
use crate::config::Config;

/// Options of `gavel threads list`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel threads list --user ann
  gavel threads list --json | jq -r .threadId
  gavel threads list --server http://localhost:8080 --user ann

A remote gavel lists only one user's threads.";

const HEADS: [&str; 6] = ["last (UTC)", "thread", "user", "agent", "state", "begins with"];

pub(super) async fn run(args: &Args, config: Option<Config>) -> anyhow::Result<Exit> {
    let none = format!("no threads{}", args.place.whose_words());
    let gavel = args.place.gavel(config, Work::Read).await?;
    gavel
        .talk(async |gavel| {
            let page = gavel.threads(&args.paging.query()).await?;
            args.paging.print(&page, &none, |threads| {
                table(&HEADS, &threads.iter().map(row).collect::<Vec<_>>())
            })
        })
        .await
}

fn row(thread: &Answer<ThreadSummary>) -> Vec<String> {
    vec![
        at(&thread.updated_at),
        thread.thread_id.clone(),
        clipped(&thread.user_id, 24),
        clipped(&thread.agent_id, 32),
        thread.latest_run.as_ref().map_or("-", |run| &run.state).to_owned(),
        clipped(&thread.title, 60),
    ]
}
