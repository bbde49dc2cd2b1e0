//! `gavel decisions show`: one complete decision.

use anyhow::bail;
use serde_json::Value;

use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{self, Gavel, Talk, Where};
use crate::cli::output;
use crate::domain::ids::{DecisionId, TenantId};

/// Options of `gavel decisions show`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The decision's id
    #[arg(value_parser = id)]
    id: DecisionId,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The tenant
    #[arg(long, default_value = "default", value_parser = gavel::tenant, value_name = "NAME")]
    pub(super) tenant: TenantId,
}

fn id(text: &str) -> Result<DecisionId, &'static str> {
    DecisionId::parse(text).ok_or("a decision's id is a UUID; `gavel decisions list` shows them")
}

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        Where::of_tenant(&self.tenant, None)
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let Some(decision) = gavel.decision(self.id).await? else {
            bail!("there is no decision {} of the tenant {}", self.id, self.tenant);
        };
        if self.json {
            output::json(&decision)?;
        } else {
            output::line(&text(&decision.json))?;
        }
        Ok(Exit::Done)
    }
}

/// The fields in order, then the calls.
fn text(decision: &Value) -> String {
    let mut text = String::new();
    for (name, value) in decision.as_object().into_iter().flatten() {
        if name == "tool_calls" || value.is_null() {
            continue;
        }
        let value = match value {
            Value::String(words) => output::printable(words).replace('\n', "\n                    "),
            other => other.to_string(),
        };
        text.push_str(&format!("{name:<18}  {value}\n"));
    }
    let calls = decision.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        text.push_str(&self::call(call));
    }
    text
}

pub(in crate::cli) fn call(call: &Value) -> String {
    let field = |name: &str| call.get(name).unwrap_or(&Value::Null);
    let word = |name: &str| output::printable(field(name).as_str().unwrap_or("-"));
    let mut text = format!(
        "\ncall {}  {} / {}  {}\n",
        field("sequence"),
        word("server"),
        word("tool"),
        word("status")
    );
    text.push_str(&format!(
        "  parameters  {}\n",
        output::printable(&field("parameters").to_string())
    ));
    if let Some(by) = field("decided_by").as_str() {
        text.push_str(&format!("  decided by  {}\n", output::printable(by)));
    }
    match call.pointer("/result/error").filter(|error| !error.is_null()) {
        Some(error) => text.push_str(&format!("  error       {}\n", output::printable(&error.to_string()))),
        None => {
            let data = call.pointer("/result/data").unwrap_or(&Value::Null);
            text.push_str(&format!("  data        {}\n", output::printable(&data.to_string())));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_is_shown_with_its_calls_and_without_what_is_not_known() {
        let decision = json!({
            "decision_id": "d", "outcome_category": "SUCCESS:TASK_COMPLETED", "error_detail": null, "response": "a\u{1b}b\nc",
            "tool_calls": [
                {"sequence": 1, "server": "tasks", "tool": "add_task", "status": "completed", "parameters": {"description": "x"},
                 "result": {"success": true, "data": {"ok": true}, "error": null}},
                {"sequence": 2, "server": null, "tool": "wipe", "status": "not_sent", "parameters": {},
                 "result": {"success": false, "data": null, "error": {"code": "unknown_tool", "message": "no"}}},
            ],
        });
        let shown = text(&decision);
        assert!(
            shown.contains("response            a\\u001bb\n                    c\n"),
            "{shown}"
        );
        assert!(!shown.contains("error_detail"));
        assert!(shown.contains(
            "call 1  tasks / add_task  completed\n  parameters  {\"description\":\"x\"}\n  data        {\"ok\":true}\n"
        ));
        assert!(shown.contains("call 2  - / wipe  not_sent\n"));
        assert!(shown.contains("  error       {\"code\":\"unknown_tool\",\"message\":\"no\"}\n"));
    }
}
