//! `gavel plan cancel`.

use super::follow::missing;
use super::id;
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::SessionStatus;

/// Options of `gavel plan cancel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// Why, for the session's record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the session as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan cancel 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan cancel --reason \"done by hand\" 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80

A session that is cancelled cannot be continued. Its plan and its history are kept.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let cancelled = unless_stopped(gavel.cancel_session(self.id, self.reason.as_deref())).await?;
        let Some(session) = cancelled else {
            return Ok(Exit::Interrupted);
        };
        let session = session.map_err(|error| missing(error, &self.place, self.id))?;
        if self.json {
            output::json(&session)?;
            return Ok(Exit::Done);
        }
        output::line(&match session.status {
            SessionStatus::Cancelled => format!("session {} is cancelled", self.id),
            status if status.has_ended() => {
                format!("session {} had already ended: {}", self.id, status.as_str())
            }
            _ => format!(
                "session {} will be cancelled when its work has stopped; `gavel plan watch{} {}` shows its end",
                self.id,
                self.place.repeated(),
                self.id
            ),
        })?;
        Ok(Exit::Done)
    }
}
