//! `gavel agents list`: the agents, and which of them are unavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::{count, load, render_error};
use crate::app;
use crate::cli::exit::Exit;
use crate::cli::interrupt::unless_stopped;
use crate::cli::table::table;
use crate::cli::{mcp, output};
use crate::config::{Config, Resolved};
use crate::domain::definition::{Agent, Agents};
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::definitions;

/// Options of `gavel agents list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Do not query the MCP servers for the tools
    #[arg(long)]
    offline: bool,
    /// Print the agents as JSON, one per line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents list                  the directory agents, or the one that GAVEL_AGENTS names, or the built-in agents
  gavel agents list --offline        without starting the MCP servers
  gavel agents list --json | jq -r 'select(.available == false).name'

An agent is unavailable if no server offers a tool on its allowlist, the provider of its \
model is not configured, or an agent that it calls is unavailable. \
Exit status 2 if a definition is invalid.";

/// The unavailable agents, and why.
pub(in crate::cli) type Unavailable = BTreeMap<String, String>;

pub(in crate::cli) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let loaded = load(&resolved.config)?;
    let agents = &loaded.checked.agents;
    // `--offline` queries no server.
    let unavailable = if args.offline {
        None
    } else {
        let Some(catalog) = catalog(&resolved.config).await? else {
            return Ok(Exit::Interrupted);
        };
        Some(unavailable(agents, &catalog, &resolved.config))
    };
    if args.json {
        let document = |(name, agent): (&String, _)| document(name, agent, agents, unavailable.as_ref());
        output::json_lines(agents.iter().map(document))?;
    } else {
        output::line(&text(&loaded.place, agents, unavailable.as_ref()))?;
    }
    for error in &loaded.checked.errors {
        output::note(&render_error(error));
    }
    Ok(if loaded.checked.errors.is_empty() {
        Exit::Done
    } else {
        Exit::Invalid
    })
}

/// The tools that the servers of this configuration offer; `None` if the user interrupted.
pub(super) async fn catalog(config: &Config) -> anyhow::Result<Option<Arc<Catalog>>> {
    let bridge = app::mcp(config)?;
    let settled = unless_stopped(mcp::settled(&bridge)).await;
    let catalog = bridge.catalog();
    bridge.shutdown().await;
    Ok(settled?.map(|()| catalog))
}

/// The same check as in the service.
pub(in crate::cli) fn unavailable(agents: &Agents, catalog: &Catalog, config: &Config) -> Unavailable {
    let models = app::providers(&config.model);
    let reason = |name: &String| Some((name.clone(), definitions::unavailable(name, agents, catalog, &models)?));
    agents.keys().filter_map(reason).collect()
}

fn document(name: &str, agent: &Agent, agents: &Agents, unavailable: Option<&Unavailable>) -> serde_json::Value {
    let definition = &agent.definition;
    let is_agent = |name: &str| agents.contains_key(name);
    json!({
        "name": name,
        "display_name": definition.display_name,
        "description": definition.description,
        "form": agent.form.as_str(),
        "file": agent.file,
        "flow_type": definition.flow.as_str(),
        "tools": definition.server_tools(is_agent),
        "calls": definition.calls(is_agent),
        "hash": &*definition.hash,
        "available": unavailable.map(|reasons| !reasons.contains_key(name)),
        "unavailable_reason": unavailable.and_then(|reasons| reasons.get(name)),
    })
}

fn text(place: &str, agents: &Agents, unavailable: Option<&Unavailable>) -> String {
    if agents.is_empty() {
        return format!("no agents ({place})");
    }
    let rows: Vec<_> = agents
        .iter()
        .map(|(name, agent)| {
            let definition = &agent.definition;
            let state = match unavailable.map(|reasons| reasons.contains_key(name)) {
                None => "not checked",
                Some(false) => "available",
                Some(true) => "unavailable",
            };
            vec![
                name.clone(),
                state.to_owned(),
                definition.flow.as_str().to_owned(),
                agent.form.as_str().to_owned(),
                definition.hash.chars().take(12).collect(),
                agent.file.clone(),
                definition.tools.join(", "),
            ]
        })
        .collect();
    let mut text = table(&["agent", "state", "flow", "form", "hash", "file", "tools"], &rows);
    for (name, reason) in unavailable.into_iter().flatten() {
        text.push_str(&output::printable(&format!("\n{name} is unavailable: {reason}")));
    }
    text.push_str(&format!("\n{} ({place})", count(agents.len(), "agent")));
    text
}
