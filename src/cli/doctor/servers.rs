//! Checks of the servers, and of the tools that agents and the constitution need from them.

use super::super::serve::banner::{not_bound, unbound};
use super::super::{agents as agents_command, mcp as mcp_command, policy as policy_command};
use super::Findings;
use crate::adapters::mcp::{Mcp, ServerState};
use crate::app;
use crate::config::Config;
use crate::domain::definition::{Agents, Constitution, answerer};
use crate::engine::Toolset;
use crate::http::google::CALLBACK;
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::definitions::Lack;
use secrecy::ExposeSecret;

pub(super) async fn servers(
    config: &Config,
    constitution: Option<&Constitution>,
    agents: &Agents,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let bridge = match app::mcp(config) {
        Ok(bridge) => bridge,
        Err(error) => return findings.error(&format!("{error:#}"), "correct the file that GAVEL_MCP_CONFIG names"),
    };
    mcp_command::settled(&bridge).await;
    // Each server has a line of its own with the reason, and an agent names many servers.
    let known = mcp_command::without_reasons(&bridge.catalog());
    let checked = each_server(&bridge, config, agents, findings)
        .and_then(|()| granted(&known, constitution, findings))
        .and_then(|()| able(&known, agents, config, findings))
        .and_then(|()| rules(&bridge, agents, config, findings));
    bridge.shutdown().await;
    checked
}

fn each_server(bridge: &Mcp, config: &Config, agents: &Agents, findings: &mut Findings) -> anyhow::Result<()> {
    let servers = bridge.status();
    if servers.is_empty() {
        findings.warn("MCP servers: none are configured")?;
    }
    for warning in bridge.warnings() {
        findings.warn(&format!("MCP servers: {warning}"))?;
    }
    for server in &servers {
        let line = format!("MCP server {}", mcp_command::headline(server).trim_end());
        match server.state {
            ServerState::Up => findings.good(&format!("{line}, {} tools", server.tools))?,
            ServerState::Off => findings.warn(&line)?,
            ServerState::Down | ServerState::Connecting => {
                let next = match config.mcp_config {
                    Some(_) => "check its entry in mcp.json".to_owned(),
                    None => format!("it is built in: check its settings ({})", settings_of(&server.name)),
                };
                findings.error(&line, &format!("{next}; RUST_LOG=info shows its output"))?;
            }
        }
    }
    for (tool, server) in unbound(&bridge.catalog(), agents) {
        findings.warn(&format!("MCP server {server}: {}", not_bound(&tool)))?;
    }
    for left in &bridge.catalog().left_out {
        findings.warn(&format!(
            "MCP server {}: {} is left out: {}",
            left.server, left.tool, left.reason
        ))?;
    }
    Ok(())
}

/// Where the settings of a built-in server are described.
fn settings_of(server: &str) -> String {
    match server {
        "tasks" => "TASKS_DATABASE_URL; docs/reference/tasks-server.md".to_owned(),
        "files" => "FILES_ROOT; docs/reference/files-server.md".to_owned(),
        "google" => "docs/how-to/google.md".to_owned(),
        other => format!("docs/reference/{other}-server.md"),
    }
}

/// Checks the google server's settings. If it is off, or cannot start, its state reports that.
pub(super) fn google(config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let Ok(settings) = app::google(config) else {
        return Ok(());
    };
    if let (Some(file), true) = (
        settings.database_file(),
        config.database_url.expose_secret().starts_with("postgres"),
    ) {
        findings.warn(&format!(
            "google: sent actions are recorded in the file {}, but decisions in PostgreSQL; with several gavels each would have its \
             own file and not know what the others sent: set GOOGLE_DATABASE_URL to one PostgreSQL database for all",
            file.display()
        ))?;
    }
    if let Some(callback) = settings.callback().filter(|url| url.path() != CALLBACK) {
        findings.warn(&format!(
            "google: GOOGLE_CALLBACK_URL ends in {}, but gavel answers at {}: unless a proxy maps one to the other, browsers cannot return",
            callback.path(),
            CALLBACK
        ))?;
    }
    Ok(())
}

/// Checks that servers offer the tools that the constitution lists.
fn granted(catalog: &Catalog, constitution: Option<&Constitution>, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(constitution) = constitution else {
        return Ok(());
    };
    let tools = &constitution.definition.tools;
    let missing = Toolset::build(catalog, tools, &[]).missing;
    if missing.is_empty() {
        return findings.good(&format!(
            "tools: all {} on the constitution's allowlist are offered",
            tools.len()
        ));
    }
    for one in missing {
        let next = "connect a server that offers it, or remove it from the constitution";
        findings.error(&format!("tool {}: {}", one.name, one.reason), next)?;
    }
    Ok(())
}

/// Reports unavailable agents as warnings: an unavailable agent stops nothing else.
fn able(catalog: &Catalog, agents: &Agents, config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let lacking = agents_command::lacking(agents, catalog, config);
    for (name, lack) in &lacking {
        findings.warn(&format!("agent {}", agents_command::sentence(name, lack)))?;
    }
    let answers = &config.runs.threads.agent;
    match answerer(agents, answers) {
        Ok(_) if matches!(lacking.get(answers.as_str()), Some(Lack::Unavailable(_))) => findings.warn(&format!(
            "threads: {answers} answers, but is unavailable: messages in threads fail until that is fixed"
        )),
        Ok(_) => findings.good(&format!("threads: {answers} answers")),
        // It has been reported already.
        Err(_) => Ok(()),
    }
}

/// Reports names in rules of the policy that match nothing. A policy that cannot be read has been reported already.
fn rules(bridge: &Mcp, agents: &Agents, config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let Ok(policy) = app::policy(config) else {
        return Ok(());
    };
    for unknown in policy_command::unknown_names(&policy, &bridge.catalog(), &bridge.status(), agents) {
        findings.warn(&format!("policy: {unknown}"))?;
    }
    Ok(())
}
