//! `gavel runs list`: one page of runs.

use super::progress;
use crate::api::runs::AgentRun;
use crate::app::Work;
use crate::cli::client::Query;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::{Paging, at, rows};
use crate::cli::table::clipped;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{DEFAULT_PROJECT, IdError, ProjectId};

/// Options of `gavel runs list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this agent's runs
    #[arg(long, value_name = "NAME", value_parser = agent)]
    agent: Option<String>,
    /// Only runs with this status
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(RunStatus::ALL.iter().map(|status| status.as_str())))]
    status: Option<String>,
    /// The project of the agents
    #[arg(long, default_value = DEFAULT_PROJECT, value_parser = project, value_name = "NAME")]
    project: ProjectId,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel runs list --status paused
  gavel runs list --agent codebase_investigator --json | jq -r .summary
  gavel runs list --server http://localhost:8080 --user ann

Runs called by another run are not listed; `gavel runs watch` shows them under their caller.";

/// Parses `--project`.
pub(crate) fn project(name: &str) -> Result<ProjectId, IdError> {
    ProjectId::parse(name)
}

/// The name becomes part of a filter, so only characters of agent names are allowed.
fn agent(name: &str) -> Result<String, &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(is_plain) && !name.is_empty() {
        Ok(name.to_owned())
    } else {
        Err("an agent's name consists of letters, digits, `_` and `-`")
    }
}

const HEADS: [&str; 7] = ["at (UTC)", "run", "agent", "status", "steps", "time", "result"];

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let conditions: Vec<_> = [("agent_id", &self.agent), ("status", &self.status)]
            .into_iter()
            .filter_map(|(field, value)| Some(format!("{field} = \"{}\"", value.as_ref()?)))
            .collect();
        let query = Query {
            filter: (!conditions.is_empty()).then(|| conditions.join(" AND ")),
            ..self.paging.query()
        };
        let page = gavel.runs(&self.project, &query).await?;
        self.paging.print(&page, "no runs", |runs| rows(&HEADS, runs, row))
    }
}

fn row(run: &AgentRun) -> Vec<String> {
    // An error matters more than the summary so far.
    let error = run.error_message.as_deref().filter(|error| !error.is_empty());
    vec![
        at(run.created_at),
        run.id.to_string(),
        clipped(&run.agent_id, 32),
        match run.attempts.len() {
            0 => run.status.to_string(),
            1 => format!("{}, resumed", run.status),
            times => format!("{}, resumed {times} times", run.status),
        },
        run.steps.to_string(),
        run.duration_ms.map_or_else(|| "-".to_owned(), progress::time),
        clipped(error.or(run.summary.as_deref()).unwrap_or_default(), 60),
    ]
}
