//! `gavel decisions show`: one complete decision.

use anyhow::bail;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::decisions::{DecisionDetail, ToolInvocation};
use crate::app::Work;
use crate::cli::exit::Exit;
use crate::cli::gavel::{self, Gavel, Talk, Where};
use crate::cli::output;
use crate::domain::ids::{DecisionId, TenantId};

/// Options of `gavel decisions show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
            output::line(&text(&decision)?)?;
        }
        Ok(Exit::Done)
    }
}

/// The fields in order, then the calls.
fn text(decision: &DecisionDetail) -> anyhow::Result<String> {
    let mut text = fields(&decision.decision, &[])?;
    decision
        .tool_calls
        .iter()
        .for_each(|call| text.push_str(&self::call(call)));
    Ok(text)
}

/// A line for each field of an object that has a value, except these.
pub(crate) fn fields(of: &impl Serialize, except: &[&str]) -> anyhow::Result<String> {
    let mut text = String::new();
    for (name, value) in serde_json::to_value(of)?.as_object().into_iter().flatten() {
        let value = match value {
            _ if except.contains(&name.as_str()) => continue,
            Value::Null => continue,
            Value::String(words) => output::printable(words).replace('\n', "\n                    "),
            other => output::printable(&other.to_string()),
        };
        text.push_str(&format!("{name:<18}  {value}\n"));
    }
    Ok(text)
}

/// A tool call.
pub(crate) fn call(call: &ToolInvocation) -> String {
    let json = |value: &Option<Box<RawValue>>| {
        // On one line, with sorted names.
        let value = value
            .as_ref()
            .map(|value| serde_json::from_str::<Value>(value.get()).unwrap_or_default());
        output::printable(&value.unwrap_or_default().to_string())
    };
    let mut text = format!(
        "\ncall {}  {} / {}  {}\n  parameters  {}\n",
        call.sequence,
        output::printable(call.server.as_deref().unwrap_or("-")),
        output::printable(&call.tool),
        call.status,
        json(&call.parameters)
    );
    if let Some(by) = &call.decided_by {
        text.push_str(&format!("  decided by  {}\n", output::printable(by)));
    }
    match &call.result.error {
        Some(error) => {
            let error = json!({"code": error.code, "message": error.message}).to_string();
            text.push_str(&format!("  error       {}\n", output::printable(&error)));
        }
        None => text.push_str(&format!("  data        {}\n", json(&call.result.data))),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn a_decision_is_shown_with_its_calls_and_without_what_is_not_known() {
        let call = |with| serde_json::to_value(sample::<ToolInvocation>(with)).unwrap();
        let decision: DecisionDetail = sample(json!({
            "decision_id": "d", "outcome_category": "SUCCESS:TASK_COMPLETED", "error_detail": null, "response": "a\u{1b}b\nc",
            "tool_calls": [
                call(json!({"sequence": 1, "server": "tasks", "tool": "add_task", "parameters": {"description": "x"},
                    "result": {"success": true, "data": {"ok": true}, "error": null}})),
                call(json!({"sequence": 2, "server": null, "tool": "wipe", "status": "not_sent", "parameters": {},
                    "result": {"success": false, "data": null, "error": {"code": "unknown_tool", "message": "no"}}})),
            ],
        }));
        let shown = text(&decision).unwrap();
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
