//! `gavel plan refine`.

use super::follow::{Followed, Showing, refined, session};
use super::outcome::{failed_refinement, tell};
use super::{STATUSES, connect_servers, conversation, id, text};
use crate::app::Work;
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::output;
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::PLANNER;

/// Options of `gavel plan refine`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// What to change, in your own words; without it, a conversation begins
    #[arg(value_name = "TEXT", num_args = 0..)]
    text: Vec<String>,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan refine 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 \"tests first, and leave the README alone\"
  gavel plan refine 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80       a conversation; quit ends it
  gavel plan refine --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 \"split t2\" | jq .planVersion

Tasks that the new version keeps keep their ids. If the refinement fails, the earlier version remains.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let words = self.text.join(" ");
        let is_blank = words.trim().is_empty();
        if is_blank && (!self.text.is_empty() || !self.showing.is_conversation()) {
            return Err(Usage("say what to change, or use a terminal for a conversation".to_owned()).into());
        }
        let before = session(gavel, &self.place, self.id).await?;
        connect_servers(gavel, PLANNER).await?;
        if is_blank {
            return conversation::hold(gavel, &self.place, before, self.showing).await;
        }
        let planned = match refined(gavel, &self.place, self.id, &words, self.showing).await? {
            Followed::Reached(planned) => planned,
            Followed::Waits => return Ok(Exit::NeedsApproval),
            Followed::Left => return Ok(Exit::Interrupted),
        };
        let exit = tell(&planned, &self.place, self.showing)?;
        if let Some(failed) = failed_refinement(&planned) {
            return Ok(failed);
        }
        if !self.showing.quiet && planned.plan_version > before.plan_version {
            let version = gavel.version(self.id, planned.plan_version).await?;
            output::note(&text::changes(version.version, &version.changes));
        }
        Ok(exit)
    }
}
