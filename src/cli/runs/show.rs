//! `gavel runs show`: one complete run.

use serde_json::Value;

use super::{follow, id};
use crate::app::Work;
use crate::cli::client::{Action, Answer, Run};
use crate::cli::decisions::call;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::output;
use crate::domain::ids::RunId;

/// Options of `gavel runs show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct Args {
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
        let mut run = gavel.run(self.id).await?;
        let decision = gavel.decision(self.id.decision()).await?;
        let mut actions = gavel.actions(self.id).await?;
        if let Some(user) = decision.as_ref().and_then(|decision| decision.user_id.as_deref()) {
            actions.iter_mut().for_each(|action| action.set_user(user));
        }
        let calls = decision.map(|mut decision| decision.json["tool_calls"].take());
        if self.json {
            run.json["tool_calls"] = calls.unwrap_or_default();
            run.json["actions"] = actions.into_iter().map(|action| action.json).collect();
            output::json(&run)?;
        } else {
            output::line(&text(&run, calls.as_ref(), &actions, &answering))?;
        }
        Ok(Exit::Done)
    }
}

/// The fields in order, the calls, and the next steps.
fn text(run: &Answer<Run>, calls: Option<&Value>, actions: &[Answer<Action>], place: &Where) -> String {
    let mut text = String::new();
    for (name, value) in run.json.as_object().into_iter().flatten() {
        // These are counted at the run's end.
        let counted = matches!(name.as_str(), "steps" | "usage");
        if name == "in_doubt" || value.is_null() || (counted && run.completed_at.is_none()) {
            continue;
        }
        let value = match value {
            Value::String(words) => output::printable(words).replace('\n', "\n                    "),
            other => output::printable(&other.to_string()),
        };
        text.push_str(&format!("{name:<18}  {value}\n"));
    }
    match calls {
        Some(calls) => calls
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|one| text.push_str(&call(one))),
        None => text.push_str("\nyou have no access to its tool calls\n"),
    }
    for action in actions {
        text.push_str(&format!("\n{}", follow::action(run, action, place)));
    }
    let next = follow::next(run, place);
    if !next.is_empty() {
        text.push_str(&format!("\n{}\n", next.join("\n")));
    }
    text
}
