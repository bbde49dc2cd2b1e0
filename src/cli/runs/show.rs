//! `gavel runs show`: one complete run.

use serde::Serialize;

use super::{follow, id};
use crate::api::decisions::{DecisionDetail, ToolInvocation};
use crate::api::runs::AgentRun;
use crate::api::threads::ActionAnswer;
use crate::app::Work;
use crate::cli::decisions::{call, fields};
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::output;
use crate::domain::ids::RunId;

/// Options of `gavel runs show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run
    #[arg(value_parser = id)]
    id: RunId,
    /// As JSON: the run, with its tool_calls and actions
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel runs show 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel runs show --json 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq .output

Tool calls come from the decision log: after the run has ended all of them, before that only those \
that may have had an effect.";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let answering = gavel.answering(&self.place).await?;
        let run = gavel.run(self.id).await?;
        let decision = gavel.decision(self.id.decision()).await?;
        let actions = gavel.actions(self.id).await?;
        if self.json {
            let user = decision.as_ref().map(|decision| decision.decision.user_id.as_str());
            let actions: Vec<_> = actions
                .iter()
                .map(|action| ActionOf {
                    user_id: user,
                    run_id: None,
                    action,
                })
                .collect();
            let calls = decision.as_ref().map(|decision| &decision.tool_calls);
            output::json(&Whole {
                of: &run,
                tool_calls: calls,
                actions,
            })?;
        } else {
            output::line(&text(&run, decision.as_ref(), &actions, &answering)?)?;
        }
        Ok(Exit::Done)
    }
}

/// A run with its calls and actions.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    of: &'a AgentRun,
    tool_calls: Option<&'a Vec<ToolInvocation>>,
    actions: Vec<ActionOf<'a>>,
}

/// An action, with what the routes of runs do not repeat for each: its user and the run whose actions were read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActionOf<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<RunId>,
    #[serde(flatten)]
    pub(crate) action: &'a ActionAnswer,
}

/// The fields in order, the calls, and the next steps.
fn text(
    run: &AgentRun,
    decision: Option<&DecisionDetail>,
    actions: &[ActionAnswer],
    place: &Where,
) -> anyhow::Result<String> {
    // Steps and tokens are counted at the run's end.
    let left_out: &[&str] = match run.completed_at {
        Some(_) => &["in_doubt"],
        None => &["in_doubt", "steps", "usage"],
    };
    let mut text = fields(run, left_out)?;
    match decision {
        Some(decision) => decision.tool_calls.iter().for_each(|one| text.push_str(&call(one))),
        None => text.push_str("\nyou have no access to its tool calls\n"),
    }
    let user = decision.map(|decision| decision.decision.user_id.as_str());
    for action in actions {
        text.push_str(&format!("\n{}", follow::action(run, action, user, place)));
    }
    let next = follow::next(run, place);
    if !next.is_empty() {
        text.push_str(&format!("\n{}\n", next.join("\n")));
    }
    Ok(text)
}
