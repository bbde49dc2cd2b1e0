//! Which MCP servers there are: the `mcp.json` that is named, or the one that is built in.

use std::collections::BTreeMap;
use std::{env, fs};

use secrecy::ExposeSecret;

use crate::adapters::mcp::config::{IDENTITY_SECRET, ToolSettings};
use crate::adapters::mcp::{ConfigIssue, McpConfig, McpOptions};
use crate::config::{Config, FileError};

/// The `mcp.json` that is built in: the bundled servers, started from this very program.
pub const BUILT_IN: &str = include_str!("../../mcp.json");

/// The path of this program, for the built-in `mcp.json`.
const PROGRAM: &str = "GAVEL_PROGRAM";

/// What `mcp.json` does not say.
pub(crate) fn options(config: &Config) -> McpOptions {
    McpOptions {
        pins: Some(config.mcp_pins.clone()),
        ..McpOptions::default()
    }
}

/// What `mcp.json` says of single tools, by server and tool.
///
/// # Errors
/// The `mcp.json` is wrong.
pub fn tool_settings(config: &Config) -> Result<BTreeMap<(String, String), ToolSettings>, FileError> {
    let servers = read(config)?.servers;
    let tools = servers.into_iter().flat_map(|server| {
        let name = server.name.to_string();
        let tools = server.gavel.tools.into_iter();
        tools.map(move |(tool, settings)| ((name.clone(), tool), settings))
    });
    Ok(tools.collect())
}

/// Reads the configuration of the servers.
pub(crate) fn read(config: &Config) -> Result<McpConfig, FileError> {
    let variable = |name: &str| match name {
        IDENTITY_SECRET => config
            .identity_secret
            .as_ref()
            .map(|secret| secret.expose_secret().to_owned()),
        PROGRAM => env::current_exe()
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok()),
        _ => env::var(name).ok(),
    };
    let (read, place) = match &config.mcp_config {
        None => (
            McpConfig::from_json(BUILT_IN, &variable),
            "mcp.json (built in)".to_owned(),
        ),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| FileError(format!("{} cannot be read: {error}", path.display())))?;
            (McpConfig::from_json(&text, &variable), path.display().to_string())
        }
    };
    read.map_err(|issues| {
        let lines: Vec<_> = issues.iter().map(ConfigIssue::to_string).collect();
        FileError(format!("{place} is wrong:\n{}", lines.join("\n")))
    })
}
