//! `gavel plan log`: the actions of a session.

use super::follow::missing;
use super::id;
use crate::api::planning::LoggedAction;
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::{Paging, at, rows};
use crate::cli::runs::time;
use crate::cli::table::clipped;
use crate::domain::ids::PlanningSessionId;

/// Options of `gavel plan log`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
    id: PlanningSessionId,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan log 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan log --limit 1000 --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -c '[.n, .taskId, .tool, .status]'

Every action of the work on the plan, in the order in which they began, with what became of it. `gavel plan show SESSION \
TASK` shows the steps of a task with their reasons and results.";

const HEADS: [&str; 7] = ["n", "at (UTC)", "task", "tool", "status", "took", "arguments or error"];

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let page = gavel.plan_log(self.id, &self.paging.query()).await;
        let page = page.map_err(|error| missing(error, &self.place, self.id))?;
        self.paging
            .print(&page, "no action has begun", |actions| rows(&HEADS, actions, row))
    }
}

fn row(action: &LoggedAction) -> Vec<String> {
    let error = action.error.as_ref();
    let error = error.map(|error| {
        let code = error.tool_code.as_deref().unwrap_or(error.code.as_str());
        format!("{code}: {}", error.message)
    });
    vec![
        action.n.to_string(),
        at(action.at),
        action.part(),
        clipped(&action.tool, 40),
        action.status.to_string(),
        action.duration_ms.map(time).unwrap_or_default(),
        clipped(&error.unwrap_or_else(|| action.arguments.get().to_owned()), 80),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_shows_the_arguments_or_the_error() {
        let action = |error: serde_json::Value| -> LoggedAction {
            let action = json!({
                "n": 3, "actionId": "01980000-0000-7000-8000-000000000000", "at": "2026-11-22T10:00:00.5Z", "taskId": "t1", "tool": "executeScript",
                "arguments": {"script": "make"}, "status": "completed", "error": error, "durationMs": 1234, "decidedBy": null,
            });
            serde_json::from_value(action).unwrap()
        };
        let shown = ["3", "2026-11-22 10:00:00", "t1", "executeScript", "completed", "1.2 s"];
        assert_eq!(row(&action(json!(null)))[..6], shown);
        assert_eq!(row(&action(json!(null)))[6], r#"{"script":"make"}"#);
        let failed = json!({"code": "tool_error", "message": "no \u{1b}[2J"});
        assert_eq!(row(&action(failed))[6], "tool_error: no \\u001b[2J");
    }
}
