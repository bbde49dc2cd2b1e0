//! `gavel runs cancel`.

use super::id;
use crate::app::Work;
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::gavel::Where;
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::config::Config;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;

/// Options of `gavel runs cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
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

pub(super) async fn run(args: &Args, config: Option<Config>) -> anyhow::Result<Exit> {
    let gavel = args.place.gavel(config, Work::Act).await?;
    gavel.talk(async |gavel| cancel(args, gavel).await).await
}

async fn cancel(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let Some(run) = unless_stopped(client.cancel(args.id)).await? else {
        return Ok(Exit::Interrupted);
    };
    let run = run?;
    if args.json {
        output::json(&run)?;
        return Ok(Exit::Done);
    }
    output::line(&match RunStatus::parse(&run.status) {
        Some(RunStatus::Cancelled) => format!("run {} is cancelled", args.id),
        Some(status) if status.is_over() => format!("run {} had already ended: {}", args.id, status.as_str()),
        _ => format!(
            "run {} will be cancelled by its worker, or by the next `gavel serve`; `gavel runs watch{} {}` shows its end",
            args.id,
            args.place.repeated(),
            args.id
        ),
    })?;
    Ok(Exit::Done)
}
