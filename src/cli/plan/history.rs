//! `gavel plan history`.

use super::follow::missing;
use super::{id, text};
use crate::api::planning::Version;
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::{at, rows};
use crate::cli::output;
use crate::cli::table::clipped;
use crate::domain::ids::PlanningSessionId;

/// Options of `gavel plan history`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    /// Print the versions as JSON, one per line, each with its whole plan
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan history 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan history --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -c '[.version, .by, .why]'

`gavel plan diff` shows what a version changed, task by task.";

const HEADS: [&str; 6] = ["version", "at (UTC)", "by", "kind", "why", "changes"];

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let versions = gavel.versions(self.id).await;
        let versions = versions.map_err(|error| missing(error, &self.place, self.id))?;
        if self.json {
            output::json_lines(&versions)?;
        } else if versions.is_empty() {
            output::note("there is no plan yet");
        } else {
            output::line(&rows(&HEADS, &versions, row))?;
        }
        Ok(Exit::Done)
    }
}

fn row(version: &Version) -> Vec<String> {
    let changes = version.changes.iter();
    let changes: Vec<_> = changes
        .map(|change| format!("{} {}", text::mark(change.op), change.task))
        .collect();
    vec![
        version.version.to_string(),
        at(version.at),
        clipped(&version.by, 24),
        version.kind.to_string(),
        clipped(&version.why, 60),
        clipped(&changes.join("  "), 80),
    ]
}
