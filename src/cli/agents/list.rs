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
use crate::surfaces::definitions::{self, Lack};

/// Options of `gavel agents list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
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

An agent is unavailable if no server offers a tool on its allowlist, or its model's provider is \
not configured. So is an agent that calls an unavailable one. The agent task_worker also \
works with some of its tools, and planner does if a server offers those that read a repository. \
Exit status 2 if a definition is invalid.";

/// Tools in the line of an agent.
const SHOWN_TOOLS: usize = 4;

/// What agents lack, by their names.
pub(crate) type Lacking = BTreeMap<String, Lack>;

pub(crate) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let loaded = load(&resolved.config)?;
    let agents = &loaded.checked.agents;
    // `--offline` queries no server.
    let catalog = if args.offline {
        None
    } else {
        let Some(catalog) = catalog(&resolved.config).await? else {
            return Ok(Exit::Interrupted);
        };
        Some(catalog)
    };
    let found_in = |catalog: &Catalog| lacking(agents, catalog, &resolved.config);
    if args.json {
        let lacking = catalog.as_deref().map(found_in);
        let document = |(name, agent): (&String, _)| document(name, agent, agents, lacking.as_ref());
        output::json_lines(agents.iter().map(document))?;
    } else {
        let lacking = catalog
            .as_deref()
            .map(|catalog| found_in(&mcp::without_reasons(catalog)));
        let mut text = text(&loaded.place, agents, lacking.as_ref());
        if let Some(catalog) = catalog.filter(|_| lacking.is_some_and(|lacking| !lacking.is_empty())) {
            text.push_str(&output::printable(&format!("\n\n{}", mcp::not_connected(&catalog))));
        }
        output::line(text.trim_end())?;
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
pub(crate) fn lacking(agents: &Agents, catalog: &Catalog, config: &Config) -> Lacking {
    let models = app::providers(&config.model);
    let lack = |name: &String| Some((name.clone(), definitions::lack(name, agents, catalog, &models)?));
    agents.keys().filter_map(lack).collect()
}

/// What the agent lacks, in a sentence.
pub(crate) fn sentence(name: &str, lack: &Lack) -> String {
    match lack {
        Lack::Unavailable(reason) => format!("{name} is unavailable: {reason}"),
        Lack::SomeTools(reason) => format!("{name} works without some of its tools: {reason}"),
    }
}

fn document(name: &str, agent: &Agent, agents: &Agents, lacking: Option<&Lacking>) -> serde_json::Value {
    let definition = &agent.definition;
    let is_agent = |name: &str| agents.contains_key(name);
    let reason = lacking.map(|lacking| match lacking.get(name) {
        Some(Lack::Unavailable(reason)) => Some(reason),
        Some(Lack::SomeTools(_)) | None => None,
    });
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
        "available": reason.map(|reason| reason.is_none()),
        "unavailable_reason": reason.flatten(),
    })
}

fn text(place: &str, agents: &Agents, lacking: Option<&Lacking>) -> String {
    if agents.is_empty() {
        return format!("no agents ({place})");
    }
    let rows: Vec<_> = agents
        .iter()
        .map(|(name, agent)| {
            let definition = &agent.definition;
            let state = match lacking.map(|lacking| lacking.get(name)) {
                None => "not checked",
                Some(None | Some(Lack::SomeTools(_))) => "available",
                Some(Some(Lack::Unavailable(_))) => "unavailable",
            };
            vec![
                name.clone(),
                state.to_owned(),
                definition.flow.as_str().to_owned(),
                agent.form.as_str().to_owned(),
                definition.hash.chars().take(12).collect(),
                agent.file.clone(),
                shown(&definition.tools),
            ]
        })
        .collect();
    let mut text = table(&["agent", "state", "flow", "form", "hash", "file", "tools"], &rows);
    for (name, lack) in lacking.into_iter().flatten() {
        text.push_str(&output::printable(&format!("\n{}", sentence(name, lack))));
    }
    text.push_str(&format!("\n{} ({place})", count(agents.len(), "agent")));
    text
}

/// The first tools; `gavel agents list --json` has all.
fn shown(tools: &[String]) -> String {
    match tools.len().saturating_sub(SHOWN_TOOLS) {
        0 | 1 => tools.join(", "),
        more => format!("{}, and {more} more", tools[..SHOWN_TOOLS].join(", ")),
    }
}
