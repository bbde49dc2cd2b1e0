//! `gavel plan watch`.

use super::follow::{FirstEvent, Followed, How, Showing, Until, follow, session};
use super::outcome::tell;
use super::waits::OnWait;
use super::{STATUSES, id};
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::domain::ids::PlanningSessionId;

/// Options of `gavel plan watch`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// Continue to watch while the plan waits for its confirmation, until the session has ended
    #[arg(long)]
    to_end: bool,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan watch 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan watch --to-end --events 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r .type
  gavel plan watch --server http://localhost:8080 --quiet --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .status

It begins with what the session has done since its first plan. It ends when a plan waits for its confirmation, or \
with the session. Each step of a task shows the time left, what the model intends (reason), the call (act) and what the \
model concluded (reflect). When a person must answer, it shows how. Ctrl-C stops watching; the \
session continues.";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let session = session(gavel, &self.place, self.id).await?;
        let how = How {
            from: FirstEvent::OfSession,
            // A plan that is being made may be what the user waits for; the work on one always ends the session.
            until: match !self.to_end && !session.status.has_ended() {
                true => Until::RunHasEnded,
                false => Until::SessionHasEnded,
            },
            on_wait: OnWait::Watches,
        };
        match follow(gavel, &self.place, session, self.showing, how).await? {
            Followed::Left => Ok(Exit::Interrupted),
            Followed::Waits => Ok(Exit::NeedsApproval),
            Followed::Reached(session) => tell(&session, &self.place, self.showing),
        }
    }
}
