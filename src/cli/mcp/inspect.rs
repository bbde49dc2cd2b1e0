//! `gavel mcp inspect`: complete tools, with the server's schema beside the one that Gemini gets.

use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use similar::TextDiff;

use crate::adapters::mcp::Mcp;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::domain::tool::{ApprovalDefault, Idempotency, Tool};
use crate::engine::Toolset;
use crate::engine::verdict::VerdictFunction;
use crate::ports::tools::{Catalog, LeftOut, Tools};

/// Options of `gavel mcp inspect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this server's tools
    server: Option<String>,
    /// Only this tool
    tool: Option<String>,
    /// Print the tools as JSON, one per line: each with both schemas and the warnings
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A pinned tool that is held back is shown with its current definition and the reason. Pass its digest to `gavel mcp accept --digest`.

Of the two schemas, - marks a line that only the server's has, and + one that only Gemini's has.

Examples:
  gavel mcp inspect tasks
  gavel mcp inspect tasks add_task --json | jq .shown_to_model";

pub(super) fn run(args: &Args, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let catalog = with_held_back(&mcp.catalog(), mcp.held_back());
    let servers = mcp.status();
    if let Some(server) = &args.server {
        super::configured(&servers, server).map_err(anyhow::Error::msg)?;
    }
    let wanted = |server: &str, tool: &str| {
        args.server.as_deref().is_none_or(|name| name == server) && args.tool.as_deref().is_none_or(|name| name == tool)
    };
    let tools: Vec<_> = catalog
        .tools
        .iter()
        .filter(|tool| wanted(&tool.server, &tool.name))
        .collect();
    let left_out: Vec<_> = catalog
        .left_out
        .iter()
        .filter(|left| wanted(&left.server, &left.tool))
        .filter(|left| !tools.iter().any(|tool| is(left, tool)))
        .collect();
    if args.json {
        let shown = tools
            .iter()
            .map(|tool| document(&catalog, tool))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let left = left_out
            .iter()
            .map(|left| json!({ "server": left.server, "name": left.tool, "left_out": left.reason }));
        output::json_lines(shown.into_iter().chain(left))?;
    } else {
        for tool in &tools {
            output::line(&text(&catalog, tool)?)?;
        }
        for left in &left_out {
            output::line(&format!(
                "{} / {}\n  left out: {}\n",
                left.server, left.tool, left.reason
            ))?;
        }
    }
    if tools.is_empty() && left_out.is_empty() {
        for server in servers
            .iter()
            .filter(|server| wanted(&server.name, args.tool.as_deref().unwrap_or_default()))
        {
            output::note(super::headline(server).trim_end());
        }
        bail!("no connected server offers this tool; `gavel mcp list` shows all tools");
    }
    Ok(Exit::Done)
}

/// The catalog with held-back tools added, so that an operator can inspect them before accepting.
fn with_held_back(catalog: &Catalog, held: Vec<Arc<Tool>>) -> Catalog {
    let mut catalog = catalog.clone();
    catalog.tools.extend(held);
    catalog
}

/// Why the tool is not offered; `None` if it is.
fn held_back<'a>(catalog: &'a Catalog, tool: &Tool) -> Option<&'a str> {
    let left = catalog.left_out.iter().find(|left| is(left, tool));
    left.map(|left| left.reason.as_str())
}

fn is(left: &LeftOut, tool: &Tool) -> bool {
    left.server == tool.server && *left.tool == *tool.name
}

/// A tool with both of its schemas.
struct Inspected {
    /// The name that the model uses if the allowlist has the tool's full name.
    shown_name: String,
    original: Value,
    shown: Value,
    warnings: Vec<String>,
}

fn inspected(catalog: &Catalog, tool: &Tool) -> anyhow::Result<Inspected> {
    let toolset = Toolset::build(catalog, &[tool.qualified_name()], &VerdictFunction::CHAT);
    let shown_name = toolset
        .functions
        .declarations
        .first()
        .map(|shown| shown.name.clone())
        .unwrap_or_default();
    let original: Value =
        serde_json::from_str(tool.input.original().get()).context("the server's schema is not JSON")?;
    let shown: Value = serde_json::from_str(tool.model_schema.get()).context("the shown schema is not JSON")?;
    let mut warnings = Vec::new();
    if let Some(name) = &tool.identity_argument {
        warnings.push(format!(
            "{name:?} is set by gavel to the acting user and hidden from the model"
        ));
    }
    for name in &tool.settings.hidden {
        warnings.push(format!(
            "{name:?} is set by the tool's server and hidden from the model (hidden)"
        ));
    }
    if tool.description.trim().is_empty() {
        warnings.push("the server gives no description; the model has only the tool's name".to_owned());
    }
    let namesakes = catalog.tools.iter().filter(|other| other.name == tool.name).count();
    if namesakes > 1 {
        warnings.push(format!(
            "{namesakes} servers offer this name; list it as {}",
            tool.qualified_name()
        ));
    }
    Ok(Inspected {
        shown_name,
        original,
        shown,
        warnings,
    })
}

fn document(catalog: &Catalog, tool: &Arc<Tool>) -> anyhow::Result<Value> {
    let seen = inspected(catalog, tool)?;
    Ok(json!({
        "server": tool.server,
        "name": tool.name,
        "shown_name": seen.shown_name,
        "description": tool.description,
        "side_effect": tool.side_effect,
        "idempotency": idempotency(tool),
        "approval": approval(tool),
        "timeout_ms": u64::try_from(tool.timeout.as_millis()).unwrap_or(u64::MAX),
        "digest": tool.digest,
        "held_back": held_back(catalog, tool),
        "recipients": tool.settings.recipients,
        "input_schema": seen.original,
        "shown_to_model": seen.shown,
        "output_schema": tool.output_schema,
        "warnings": seen.warnings,
    }))
}

fn text(catalog: &Catalog, tool: &Arc<Tool>) -> anyhow::Result<String> {
    let seen = inspected(catalog, tool)?;
    let effect = super::effect(tool);
    let mut text = format!(
        "{} / {}  (the model calls it {})\n",
        tool.server, tool.name, seen.shown_name
    );
    text.push_str(&format!(
        "  {}\n",
        output::printable(tool.description.trim()).replace('\n', "\n  ")
    ));
    text.push_str(&format!(
        "  {effect} · idempotency {} · approval {} · at most {} s\n  digest {}\n",
        idempotency(tool),
        approval(tool),
        tool.timeout.as_secs_f64(),
        tool.digest,
    ));
    if let Some(reason) = held_back(catalog, tool) {
        text.push_str(&format!("  held back: {}\n", output::printable(reason)));
    }
    for warning in &seen.warnings {
        text.push_str(&format!("  ! {}\n", output::printable(warning)));
    }
    let (left, right) = (
        serde_json::to_string_pretty(&seen.original)?,
        serde_json::to_string_pretty(&seen.shown)?,
    );
    let (left, right) = (output::printable(&left), output::printable(&right));
    text.push_str("  --- input schema of the server\n  +++ input schema for Gemini\n");
    for line in TextDiff::from_lines(&left, &right).iter_all_changes() {
        text.push_str(&format!("  {}{}\n", line.tag(), line.value().trim_end_matches('\n')));
    }
    Ok(text)
}

fn idempotency(tool: &Tool) -> &'static str {
    match tool.idempotency {
        Idempotency::None => "none",
        Idempotency::Natural => "natural",
        Idempotency::Key => "key",
    }
}

fn approval(tool: &Tool) -> &'static str {
    match tool.settings.approval {
        Some(ApprovalDefault::Required) => "required",
        Some(ApprovalDefault::NotRequired) => "not required",
        None => "as the agent's definition says",
    }
}
