//! `gavel approvals approve` and `reject`.

use serde_json::Value;

use super::approval;
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::cli::runs::{Place, Service, Where};
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::ids::ApprovalId;
use crate::surfaces::approvals::{Answer, MAX_REASON};

/// Options of `gavel approvals approve`.
#[derive(Debug, clap::Args)]
#[command(after_help = APPROVE)]
pub(in crate::cli) struct Approve {
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
#[command(after_help = REJECT)]
pub(in crate::cli) struct Reject {
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
    /// The reason; if the call is rejected, the agent reads it
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

pub(super) async fn approve(args: Approve, place: Place) -> anyhow::Result<Exit> {
    let resolution = match args.always {
        true => Resolution::ApproveAndAlwaysAllowRecipient,
        false => Resolution::ApproveOnce,
    };
    say(args.id, resolution, args.how, place, &args.place.repeated()).await
}

pub(super) async fn reject(args: Reject, place: Place) -> anyhow::Result<Exit> {
    say(args.id, Resolution::Reject, args.how, place, &args.place.repeated()).await
}

/// `again` are the place options, for a suggested command.
async fn say(
    approval: ApprovalId,
    resolution: Resolution,
    how: How,
    place: Place,
    again: &str,
) -> anyhow::Result<Exit> {
    if how.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(Usage(format!("--reason is longer than {MAX_REASON} bytes")).into());
    }
    let answer = Answer {
        approval,
        resolution,
        reason: how.reason,
        key: None,
    };
    // A rule of the other gavel may forbid the call, or its servers may differ: that must not be bypassed silently.
    if !how.here && place.is_in_use().await? {
        return Err(Usage(
            "another gavel uses this database: answer through it with --server URL, so that its policy and servers apply, or \
             give --here to continue the run in this process, with its own policy and servers"
                .to_owned(),
        )
        .into());
    }
    let service = Service::open(place).await?;
    let answered = unless_stopped(service.resolve(answer)).await;
    let detach = matches!(answered, Ok(None));
    service.close(detach).await?;
    let Some(run) = answered? else {
        output::note("it is unknown whether the answer counts; it is safe to repeat the command");
        return Ok(Exit::Interrupted);
    };
    let run = run?;
    if how.json {
        output::json(&run)?;
    } else {
        output::line(&run_message(&run))?;
        for action in in_doubt(&run) {
            output::note(&format!(
                "{}: find out at the receiving end whether it happened, then run `gavel approvals settle {} \
                 happened|did_not_happen{again}`",
                output::printable(action["tool"].as_str().unwrap_or_default()),
                action["actionId"].as_str().unwrap_or_default()
            ));
        }
    }
    Ok(match in_doubt(&run).next() {
        Some(_) => Exit::Failed,
        None => Exit::Done,
    })
}

/// The actions of the run whose outcome is unknown.
fn in_doubt(run: &Value) -> impl Iterator<Item = &Value> {
    let actions = run["actions"].as_array().into_iter().flatten();
    actions.filter(|action| action["state"] == ActionStatus::InDoubt.as_str())
}

/// The result as text: each action, the run, its summary.
pub(super) fn run_message(run: &Value) -> String {
    let text = |value: &Value| output::printable(value.as_str().unwrap_or_default());
    let mut lines: Vec<String> = Vec::new();
    for action in run["actions"].as_array().into_iter().flatten() {
        let code = match action["errorCode"].as_str() {
            Some(code) => format!(" ({})", output::printable(code)),
            None => String::new(),
        };
        let why = match action["errorMessage"].as_str() {
            Some(why) => format!(": {}", output::printable(why)),
            None => String::new(),
        };
        lines.push(format!(
            "{}: {}{code}{why}",
            text(&action["tool"]),
            text(&action["state"])
        ));
    }
    lines.push(format!("run {}: {}", text(&run["runId"]), text(&run["state"])));
    if let Some(summary) = run["summary"].as_str().filter(|words| !words.trim().is_empty()) {
        lines.push(output::printable(summary));
    }
    lines.join("\n")
}
