//! `gavel runs watch`.

use super::follow::{OnInterrupt, Showing, follow};
use super::{STATUSES, id};
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::domain::ids::RunId;

/// Options of `gavel runs watch`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The run
    #[arg(value_parser = id)]
    id: RunId,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel runs watch 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs watch --server http://localhost:8080 --events 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .type

It begins with what the run has done so far. Ctrl-C stops watching; the run continues.";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        follow(gavel, &self.place, self.id, &self.showing, OnInterrupt::Leaves, 0).await
    }
}
