//! `gavel plan watch`.

use super::follow::{Followed, OnApproval, Showing, follow, session};
use super::outcome::tell;
use super::{STATUSES, id};
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::domain::ids::PlanningSessionId;

/// Options of `gavel plan watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(in crate::cli) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan watch 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan watch --server http://localhost:8080 --events 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .type

It begins with what the run that plans has done so far, and ends with the plan. Ctrl-C stops watching; the session \
continues.";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let session = session(gavel, &self.place, self.id).await?;
        match follow(gavel, &self.place, session, self.showing, OnApproval::Watches).await? {
            Followed::Left => Ok(Exit::Interrupted),
            Followed::Waits => Ok(Exit::RunWaits),
            Followed::Planned(session) => tell(&session, &self.place, self.showing),
        }
    }
}
