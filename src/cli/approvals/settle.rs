//! `gavel approvals settle`.

use super::answer::run_message;
use super::{no_action, not_found};
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::domain::ids::ActionId;

/// Options of `gavel approvals settle`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The in-doubt action
    #[arg(value_parser = action)]
    id: ActionId,
    /// Whether it happened
    #[arg(value_parser = ["happened", "did_not_happen"])]
    what: String,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel approvals settle 0198c2b6-1111-7c52-9d3b-5a1c4e6f7a80 happened

An action is in doubt if it was sent and its outcome is unknown. It is never repeated automatically:
check the receiving system (the mailbox, the calendar), then report the result here.";

fn action(text: &str) -> Result<ActionId, &'static str> {
    ActionId::parse(text).ok_or("an action's id is a UUID; its run shows it, as actionId")
}

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let Some(run) = unless_stopped(gavel.settle(self.id, self.what == "happened")).await? else {
            return Ok(Exit::Interrupted);
        };
        let run = run.map_err(|error| not_found(error, &no_action(&self.place)))?;
        if self.json {
            output::json(&run)?;
        } else {
            output::line(&run_message(&run))?;
        }
        Ok(Exit::Done)
    }
}
