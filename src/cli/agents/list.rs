//! `gavel agents list`: the agents, and which of them cannot work now.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::{count, load, told};
use crate::app;
use crate::cli::exit::Exit;
use crate::cli::interrupt::unless_stopped;
use crate::cli::table::table;
use crate::cli::{mcp, output};
use crate::config::{Config, Resolved};
use crate::domain::definition::{Agent, Agents};
use crate::engine::Toolset;
use crate::engine::toolset::by_reason;
use crate::ports::tools::{Catalog, Tools};

/// Options of `gavel agents list`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Do not ask the MCP servers whether they offer the tools
    #[arg(long)]
    offline: bool,
    /// As JSON: {place, agents, errors}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents list                  the folder agents, or the one that GAVEL_AGENTS names, or what is built in
  gavel agents list --offline        without starting the MCP servers
  gavel agents list --json | jq '.agents[] | select(.unavailable != []) | .name'

An agent is unavailable while a tool of its grant is offered by no server, or an agent that it calls is unavailable.
Exit status 2 when a definition is wrong.";

/// Why each agent cannot work; nobody is asked under `--offline`.
pub(in crate::cli) type Unavailable = BTreeMap<String, Vec<String>>;

pub(in crate::cli) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let loaded = load(&resolved.config)?;
    let agents = &loaded.checked.agents;
    let unavailable = if args.offline {
        None
    } else {
        let Some(catalog) = catalog(&resolved.config).await? else {
            return Ok(Exit::Interrupted);
        };
        Some(unavailable(agents, &catalog))
    };
    if args.json {
        let agents: Vec<_> = agents
            .iter()
            .map(|(name, agent)| document(name, agent, unavailable.as_ref()))
            .collect();
        output::json(&json!({ "place": loaded.place, "agents": agents, "errors": loaded.checked.errors }))?;
    } else {
        output::line(&text(&loaded.place, agents, unavailable.as_ref()))?;
        for error in &loaded.checked.errors {
            output::note(&told(error));
        }
    }
    Ok(if loaded.checked.errors.is_empty() {
        Exit::Done
    } else {
        Exit::Wrong
    })
}

/// What the servers of this configuration offer; `None` when the person would not wait.
pub(super) async fn catalog(config: &Config) -> anyhow::Result<Option<Arc<Catalog>>> {
    let bridge = app::mcp(config)?;
    let settled = unless_stopped(mcp::settled(&bridge)).await;
    let catalog = bridge.catalog();
    bridge.shutdown().await;
    Ok(settled?.map(|()| catalog))
}

/// For each agent: which tools nobody offers, and which agents it calls that cannot work themselves.
pub(in crate::cli) fn unavailable(agents: &Agents, catalog: &Catalog) -> Unavailable {
    let mut reasons: Unavailable = agents
        .iter()
        .map(|(name, agent)| {
            let missing = Toolset::build(catalog, &agent.definition.tools, &[]).missing;
            let lines = by_reason(&missing).into_iter().map(|(reason, tools)| {
                let plural = if tools.len() == 1 { "" } else { "s" };
                format!("tool{plural} {}: {reason}", tools.join(", "))
            });
            (name.clone(), lines.collect())
        })
        .collect();
    // Agents call one another without a cycle, so in as many rounds as there are agents all is known.
    for _ in agents {
        for (name, agent) in agents {
            for called in agent.definition.calls() {
                let line = format!("agent {called}: it is unavailable itself");
                let is_out = reasons.get(called).is_some_and(|reasons| !reasons.is_empty());
                if let Some(own) = reasons.get_mut(name).filter(|own| is_out && !own.contains(&line)) {
                    own.push(line);
                }
            }
        }
    }
    reasons
}

fn document(name: &str, agent: &Agent, unavailable: Option<&Unavailable>) -> serde_json::Value {
    let definition = &agent.definition;
    json!({
        "name": name,
        "display_name": definition.display_name,
        "description": definition.description,
        "form": agent.form.as_str(),
        "file": agent.file,
        "flow_type": definition.flow.as_str(),
        "tools": definition.tools,
        "calls": definition.calls(),
        "hash": &*definition.hash,
        "unavailable": unavailable.map(|reasons| reasons.get(name)),
    })
}

fn text(place: &str, agents: &Agents, unavailable: Option<&Unavailable>) -> String {
    if agents.is_empty() {
        return format!("no agents ({place})");
    }
    let reasons = |name: &str| {
        unavailable
            .and_then(|all| all.get(name))
            .filter(|reasons| !reasons.is_empty())
    };
    let rows: Vec<_> = agents
        .iter()
        .map(|(name, agent)| {
            let definition = &agent.definition;
            let state = match (unavailable, reasons(name)) {
                (None, _) => "not asked",
                (Some(_), None) => "available",
                (Some(_), Some(_)) => "unavailable",
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
    for name in agents.keys() {
        for reason in reasons(name).into_iter().flatten() {
            text.push_str(&output::printable(&format!("\n{name} is unavailable: {reason}")));
        }
    }
    text.push_str(&format!("\n{} ({place})", count(agents.len(), "agent")));
    text
}
