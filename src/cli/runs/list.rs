//! `gavel runs list`: one page of runs.

use serde_json::Value;

use super::place::{Place, Where};
use super::progress;
use super::record::Record;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::table::{clipped, table};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{IdError, ProjectId};
use crate::ports::records::ListQuery;
use crate::surfaces::agents::DEFAULT_PROJECT;

/// Options of `gavel runs list`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only this agent's runs
    #[arg(long, value_name = "NAME", value_parser = agent)]
    agent: Option<String>,
    /// Only runs with this status
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(RunStatus::ALL.iter().map(|status| status.as_str())))]
    status: Option<String>,
    /// The project of the agents
    #[arg(long, default_value = DEFAULT_PROJECT, value_parser = project, value_name = "NAME")]
    project: ProjectId,
    /// Rows per page, 1 to 1000
    #[arg(long, visible_alias = "page-size", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Continue after the previous page; the other options must be the same
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Print runs as JSON, one per line
    #[arg(long)]
    json: bool,
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
pub(in crate::cli) fn project(name: &str) -> Result<ProjectId, IdError> {
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

pub(super) async fn run(args: &Args, place: Place) -> anyhow::Result<Exit> {
    let conditions: Vec<_> = [("agent_id", &args.agent), ("status", &args.status)]
        .into_iter()
        .filter_map(|(field, value)| Some(format!("{field} = \"{}\"", value.as_ref()?)))
        .collect();
    let query = ListQuery {
        page_size: args.limit,
        page_token: args.page_token.clone(),
        filter: (!conditions.is_empty()).then(|| conditions.join(" AND ")),
        ..ListQuery::default()
    };
    let record = Record::open(place).await?;
    let page = record.list(&args.project, query).await;
    record.close().await;
    let page = page?;
    let runs = page["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if args.json {
        for run in runs {
            output::line(&run.to_string())?;
        }
    } else if runs.is_empty() {
        output::note("no runs");
    } else {
        output::line(&rows(runs))?;
    }
    if let Some(token) = page["next_page_token"].as_str() {
        output::note(&format!("more: the same command with --page-token {token}"));
    }
    Ok(Exit::Done)
}

fn rows(runs: &[Value]) -> String {
    let rows: Vec<_> = runs.iter().map(row).collect();
    table(
        &["at (UTC)", "run", "agent", "status", "steps", "time", "result"],
        &rows,
    )
}

fn row(run: &Value) -> Vec<String> {
    let text = |field: &str| run[field].as_str().unwrap_or_default();
    // 2026-11-20T10:20:30.123456Z to the second.
    let at: String = text("created_at").chars().take(19).collect();
    // An error matters more than the summary so far.
    let result = match text("error_message") {
        "" => text("summary"),
        error => error,
    };
    vec![
        at.replace('T', " "),
        text("id").to_owned(),
        clipped(text("agent_id"), 32),
        match run["resumed_by"].is_string() {
            true => format!("{}, resumed", text("status")),
            false => text("status").to_owned(),
        },
        run["steps"].to_string(),
        run["duration_ms"]
            .as_u64()
            .map_or_else(|| "-".to_owned(), progress::time),
        clipped(result, 60),
    ]
}
