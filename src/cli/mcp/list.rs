//! `gavel mcp list`: servers, their state and their tools.

use std::sync::Arc;

use serde_json::json;

use crate::adapters::mcp::{Mcp, ServerState, ServerStatus};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::table::{clipped, table};
use crate::ports::tools::{Catalog, Tools};

/// Options of `gavel mcp list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Exit status 1 if a server is neither connected nor off.")]
pub(crate) struct Args {
    /// Print the servers as JSON, one per line: each with its tools, and the tools left out
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let (servers, catalog) = (mcp.status(), mcp.catalog());
    if args.json {
        output::json_lines(documents(&servers, &catalog))?;
    } else {
        output::line(&text(&servers, &catalog))?;
    }
    let all_up = servers
        .iter()
        .all(|server| matches!(server.state, ServerState::Up | ServerState::Off));
    Ok(if all_up { Exit::Done } else { Exit::Failed })
}

fn documents(servers: &[ServerStatus], catalog: &Catalog) -> Vec<serde_json::Value> {
    let tools = |server: &ServerStatus| -> Vec<_> {
        let own = catalog.tools.iter().filter(|tool| tool.server == server.name);
        own.map(|tool| json!({ "name": tool.name, "description": tool.description, "side_effect": tool.side_effect }))
            .collect()
    };
    let left_out = |server: &ServerStatus| -> Vec<_> {
        let own = catalog.left_out.iter().filter(|left| left.server == server.name);
        own.map(|left| json!({ "name": left.tool, "reason": left.reason }))
            .collect()
    };
    servers
        .iter()
        .map(|server| json!({ "status": server, "tools": tools(server), "left_out": left_out(server) }))
        .collect()
}

fn text(servers: &[ServerStatus], catalog: &Catalog) -> String {
    if servers.is_empty() {
        return "no MCP servers are configured".to_owned();
    }
    let mut text = String::new();
    for server in servers {
        text.push_str(&headline(server));
        let mut rows: Vec<Vec<String>> = catalog
            .tools
            .iter()
            .filter(|tool| tool.server == server.name)
            .map(|tool| {
                let effect = if tool.side_effect {
                    "changes things"
                } else {
                    "only reads"
                };
                vec![
                    format!("  {}", tool.name),
                    effect.to_owned(),
                    clipped(&tool.description, 80),
                ]
            })
            .collect();
        rows.extend(
            catalog
                .left_out
                .iter()
                .filter(|left| left.server == server.name)
                .map(|left| vec![format!("  {}", left.tool), "left out".to_owned(), left.reason.clone()]),
        );
        if !rows.is_empty() {
            text.push_str(&table(&["  tool", "effect", "what"], &rows));
        }
        text.push('\n');
    }
    text
}

/// `tasks: connected over stdio to gavel (gavel-mcp-tasks 0.1.0, protocol 2026-07-28)`
pub(crate) fn headline(server: &ServerStatus) -> String {
    let state = match server.state {
        ServerState::Up => "connected",
        ServerState::Connecting => "still connecting",
        ServerState::Down => "not connected",
        ServerState::Off => "off",
    };
    let mut line = format!("{}: {state}", server.name);
    if let (Some(transport), Some(place)) = (server.transport, &server.place) {
        line.push_str(&format!(" over {transport} to {place}"));
    }
    let protocol = server.protocol.as_ref().map(|protocol| format!("protocol {protocol}"));
    let about: Vec<_> = [server.software.clone(), protocol].into_iter().flatten().collect();
    if !about.is_empty() {
        line.push_str(&format!(" ({})", about.join(", ")));
    }
    if let Some(reason) = &server.reason {
        line.push_str(&format!(": {reason}"));
    } else if server.state == ServerState::Connecting {
        line.push_str(
            ": no answer to initialize yet: does it speak MCP, and does it write nothing else to its output?",
        );
    }
    output::printable(&line) + "\n"
}
