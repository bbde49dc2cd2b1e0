//! `gavel approvals approve` and `reject`.

use super::question::settles;
use super::{approval, no_action, not_found};
use crate::api::approvals::ResolveBody;
use crate::api::threads::{ActionAnswer, RunAnswer};
use crate::app::{Work, running_process};
use crate::cli::client::Client;
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::config::Config;
use crate::domain::action::{self, ActionStatus};
use crate::domain::ids::ApprovalId;

/// Options of `gavel approvals approve`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = APPROVE)]
pub(crate) struct Approve {
    /// The approval request
    #[arg(value_parser = approval)]
    id: ApprovalId,
    /// Also create a grant: later calls of the tool to exactly the same recipients run without approval
    #[arg(long)]
    always: bool,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    pub(super) place: Where,
}

/// Options of `gavel approvals reject`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = REJECT)]
pub(crate) struct Reject {
    /// The approval request
    #[arg(value_parser = approval)]
    id: ApprovalId,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    pub(super) place: Where,
}

#[derive(Debug, clap::Args)]
struct How {
    /// The reason, for the records; the agent reads that of a rejection
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Continue the run in this process, with its own policy, servers and model, even while another gavel uses the
    /// database
    #[arg(long, conflicts_with = "server")]
    here: bool,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

const APPROVE: &str = "\
Examples:
  gavel approvals approve 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel approvals approve 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 --always

If several approvers answer, only the first answer counts; repeating the same answer changes nothing, so it is safe \
after a lost connection. `gavel approvals grants` lists the grants.

Exit status: 0 the answer counts; 1 it does not, or it does and an action of the run is in doubt.";

const REJECT: &str = "\
Examples:
  gavel approvals reject 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 --reason 'wrong Bob'

The call does not run. The agent reads the reason and continues, or its run ends (setting runs.on_reject).";

impl Talk for Approve {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        self.how.check(config).await
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let decision = match self.always {
            true => action::Resolution::ApproveAndAlwaysAllowRecipient,
            false => action::Resolution::ApproveOnce,
        };
        resolve(gavel, self.id, decision, &self.how, &self.place).await
    }
}

impl Talk for Reject {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        self.how.check(config).await
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let decision = action::Resolution::Reject;
        resolve(gavel, self.id, decision, &self.how, &self.place).await
    }
}

impl How {
    /// A rule of the other gavel may forbid the call, or its servers may differ: that must not be bypassed silently.
    async fn check(&self, config: &Config) -> anyhow::Result<()> {
        if self.here {
            return Ok(());
        }
        let Some(other) = running_process(config).await? else {
            return Ok(());
        };
        let url = other.url.as_deref().unwrap_or("URL");
        Err(Usage(format!(
            "another gavel uses this database: answer through it with --server {url}, and --user NAME unless a key says who \
             you are, so that its policy and servers apply; `gavel approvals list` prints the whole command. Or give --here \
             to continue the run in this process, with its own policy and servers"
        ))
        .into())
    }
}

async fn resolve(
    client: &Client,
    approval_id: ApprovalId,
    decision: action::Resolution,
    how: &How,
    place: &Where,
) -> anyhow::Result<Exit> {
    let resolution = ResolveBody {
        approval_id,
        decision,
        reason: how.reason.clone(),
    };
    let Some(run) = unless_stopped(client.resolve_and_wait(&resolution)).await? else {
        output::note("it is unknown whether the answer counts; it is safe to repeat the command");
        return Ok(Exit::Interrupted);
    };
    let run = run.map_err(|error| not_found(error, &no_action(place)))?;
    if how.json {
        output::json(&run)?;
    } else {
        output::line(&run_message(&run))?;
        for action in in_doubt(&run) {
            output::note(&format!(
                "{}: the outcome is unknown. Look at the receiving end, then run one of these:\n{}",
                output::printable(&action.tool),
                settles(action.action_id, &place.repeated()).trim_end()
            ));
        }
    }
    Ok(match in_doubt(&run).next() {
        Some(_) => Exit::Failed,
        None => Exit::Done,
    })
}

/// The actions of the run whose outcome is unknown.
fn in_doubt(run: &RunAnswer) -> impl Iterator<Item = &ActionAnswer> {
    run.actions
        .iter()
        .filter(|action| action.state == ActionStatus::InDoubt)
}

/// The result as text: each action, the run, its summary.
pub(super) fn run_message(run: &RunAnswer) -> String {
    let mut lines: Vec<String> = Vec::new();
    for action in &run.actions {
        let mut line = format!("{}: {}", action.tool, action.state);
        if let Some(code) = &action.error_code {
            line.push_str(&format!(" ({code})"));
        }
        if let Some(why) = &action.error_message {
            line.push_str(&format!(": {why}"));
        }
        lines.push(line);
    }
    lines.push(format!("run {}: {}", run.run_id, run.state));
    if !run.summary.trim().is_empty() {
        lines.push(run.summary.clone());
    }
    output::printable(&lines.join("\n"))
}
