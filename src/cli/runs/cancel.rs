//! `gavel runs cancel`.

use super::id;
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;

/// Options of `gavel runs cancel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run
    #[arg(value_parser = id)]
    id: RunId,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel runs cancel 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs cancel --server http://localhost:8080 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80

A run that a worker executes ends within seconds, when its worker sees the cancellation. A run without a worker \
ends when the next `gavel serve` resumes it. Completed actions are not undone. A run that has ended \
does not change.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let Some(run) = unless_stopped(gavel.cancel(self.id)).await? else {
            return Ok(Exit::Interrupted);
        };
        let run = run?;
        if self.json {
            output::json(&run)?;
            return Ok(Exit::Done);
        }
        output::line(&match run.status {
            RunStatus::Cancelled => format!("run {} is cancelled", self.id),
            status if status.has_ended() => format!("run {} had already ended: {}", self.id, status.as_str()),
            _ => format!(
                "run {} will be cancelled by its worker, or by the next `gavel serve`; `gavel runs watch{} {}` shows its end",
                self.id,
                self.place.repeated(),
                self.id
            ),
        })?;
        Ok(Exit::Done)
    }
}
