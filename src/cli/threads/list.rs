//! `gavel threads list`: one page of threads.

use crate::api::threads::ThreadSummary;
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::{Paging, at, rows};
use crate::cli::table::clipped;

/// Options of `gavel threads list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
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

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let page = gavel.threads(&self.paging.query()).await?;
        let none = format!("no threads{}", self.place.whose_words());
        self.paging.print(&page, &none, |threads| rows(&HEADS, threads, row))
    }
}

fn row(thread: &ThreadSummary) -> Vec<String> {
    vec![
        at(thread.updated_at),
        thread.thread_id.to_string(),
        clipped(&thread.user_id, 24),
        clipped(&thread.agent_id, 32),
        thread.latest_run.as_ref().map_or("-", |run| &run.state).to_owned(),
        clipped(thread.title.as_deref().unwrap_or_default(), 60),
    ]
}
