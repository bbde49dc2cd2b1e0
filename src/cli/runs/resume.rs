//! `gavel runs resume`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::follow::{self, OnInterrupt, Showing, follow};
use super::{STATUSES, id, timeout};
use crate::app::Work;
use crate::cli::client::{Client, Refused};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::domain::ids::{ActionId, RunId};

/// Options of `gavel runs resume`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The run: a paused one, or one whose processes were lost
    #[arg(value_parser = id)]
    id: RunId,
    /// The outcome of an in-doubt action: happened or did_not_happen (repeatable)
    #[arg(long, value_name = "ACTION=WHAT", value_parser = settled)]
    settled: Vec<(ActionId, bool)>,
    /// Overrides the definition's time limit
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Do not wait for the end: print the run's id. Only with --server: without it, this process executes the run
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel runs resume 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs resume 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 --timeout 600
  gavel runs resume 0198c2b5-… --settled 0198c2b6-…=did_not_happen

The run continues with a fresh budget of steps and time. Each in-doubt action must be settled first: say \
whether it had its effect, and the agent continues with that. Ctrl-C cancels the run and waits for its end; a second Ctrl-C stops waiting.";

fn settled(text: &str) -> Result<(ActionId, bool), String> {
    let allowed = "give ACTION=happened or ACTION=did_not_happen; `gavel runs show` lists the in-doubt actions";
    let (action, what) = text.split_once('=').ok_or(allowed)?;
    let action = ActionId::parse(action).ok_or(allowed)?;
    match what {
        "happened" => Ok((action, true)),
        "did_not_happen" => Ok((action, false)),
        _ => Err(allowed.to_owned()),
    }
}

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let mut settled = BTreeMap::new();
        for (action, happened) in &self.settled {
            if settled
                .insert(*action, *happened)
                .is_some_and(|before| before != *happened)
            {
                return Err(Usage(format!("--settled gives both outcomes for {action}; give one")).into());
            }
        }
        resume(self, gavel, settled).await
    }
}

async fn resume(args: &Args, client: &Client, settled: BTreeMap<ActionId, bool>) -> anyhow::Result<Exit> {
    let Some(resumed) = unless_stopped(client.resume(args.id, settled, args.timeout)).await? else {
        return Ok(Exit::Interrupted);
    };
    let run = match resumed {
        Err(error) if is_in_doubt(&error) => {
            let run = client.run(args.id).await?;
            for line in follow::next(&run, &args.place) {
                output::note(&line);
            }
            return Err(Usage("give the outcome of each in-doubt action with --settled".to_owned()).into());
        }
        resumed => resumed?,
    };
    if args.background {
        output::line(&run.to_string())?;
        return Ok(Exit::Done);
    }
    let attempt = client.run(run).await?.attempts.len();
    follow(client, &args.place, run, &args.showing, OnInterrupt::Cancels, attempt).await
}

fn is_in_doubt(error: &anyhow::Error) -> bool {
    Refused::in_error(error).is_some_and(|refused| refused.has_code("calls_in_doubt"))
}
