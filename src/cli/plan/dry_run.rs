//! What would happen if a plan were confirmed now.

use super::follow::missing;
use crate::api::planning::{DryRun, ExecuteBody, Fitness};
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::gavel::Where;
use crate::cli::output;
use crate::cli::table::{single_line, table};
use crate::domain::ids::PlanningSessionId;

const HEADS: [&str; 4] = ["task", "tool", "answer", "why"];

/// Shows it; nothing begins.
///
/// # Errors
/// The plan could not be confirmed now.
pub(super) async fn show(
    client: &Client,
    place: &Where,
    id: PlanningSessionId,
    execute: &ExecuteBody,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let dry_run = client.dry_run(id, execute).await;
    let dry_run = dry_run.map_err(|error| missing(error, place, id))?;
    match as_json {
        true => output::json(&dry_run)?,
        false => output::line(&text(&dry_run))?,
    }
    Ok(Exit::Done)
}

/// A line for each tool of each task, one with the servers, and one for each thing that they act on.
fn text(dry_run: &DryRun) -> String {
    let tools = dry_run.tasks.iter();
    let tools = tools.flat_map(|task| task.tools.iter().map(|tool| (&task.task_id, tool)));
    let rows: Vec<Vec<String>> = tools
        .map(|(task, tool)| {
            let (task, answer) = (task.to_string(), tool.answer.to_string());
            vec![task, tool.tool.clone(), answer, tool.reason.clone()]
        })
        .collect();
    let mut text = format!(
        "plan {} was not confirmed; nothing has begun\n\n{}",
        dry_run.plan_version,
        table(&HEADS, &rows)
    );
    let servers = dry_run.servers.iter();
    let servers: Vec<_> = servers
        .map(|server| {
            let why = server.reason.as_deref().map(|why| format!(" ({})", single_line(why)));
            let (name, state) = (single_line(&server.server), server.state);
            format!("{name} {state}{}", why.unwrap_or_default())
        })
        .collect();
    if !servers.is_empty() {
        text.push_str(&format!("\nservers: {}\n", servers.join(", ")));
    }
    for condition in &dry_run.conditions {
        let mark = match condition.state {
            Fitness::Good => '✓',
            Fitness::Warning => '!',
            Fitness::Error => '✗',
        };
        let of = condition.of.as_str().replace('_', " ");
        text.push_str(&format!("{mark} {of}: {}\n", single_line(&condition.detail)));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_tool_of_each_task_has_its_answer_and_the_reason() {
        let dry_run = json!({
            "planVersion": 2,
            "tasks": [{"taskId": "t1", "title": "Close", "tools": [
                {"tool": "executeScript", "server": "docker", "answer": "allow", "reason": "the plan names it"},
                {"tool": "close\nIssue", "server": null, "answer": "require_approval", "reason": "mcp.json \u{1b}[2J requires it"},
            ]}],
            "servers": [{"server": "docker", "state": "connected"},
                        {"server": "github", "state": "unavailable", "reason": "needs GITHUB_TOKEN"}],
            "conditions": [{"of": "container_engine", "state": "error", "detail": "no answer: start it"}],
        });
        let dry_run: DryRun = serde_json::from_value(dry_run).unwrap();
        assert_eq!(
            text(&dry_run),
            "plan 2 was not confirmed; nothing has begun

task  tool           answer            why
t1    executeScript  allow             the plan names it
t1    close Issue    require_approval  mcp.json \\u001b[2J requires it

servers: docker connected, github unavailable (needs GITHUB_TOKEN)
✗ container engine: no answer: start it
"
        );
    }
}
