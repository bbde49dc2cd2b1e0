//! The configured MCP servers: the named `mcp.json`, or the built-in one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use secrecy::{ExposeSecret, SecretString};

use crate::adapters::mcp::config::{IDENTITY_SECRET, Identity, ServerConfig, ToolSettings, TransportConfig};
use crate::adapters::mcp::{ConfigIssue, McpConfig, McpOptions};
use crate::config::{Config, FileError, ModelConfig, Provider};
use crate::domain::tool::ApprovalDefault;

/// The built-in `mcp.json`: the bundled servers, started from this program.
pub const BUILT_IN: &str = include_str!("../../mcp.json");
/// What messages call it.
const BUILT_IN_PLACE: &str = "mcp.json (built in)";

/// The path of this program, used by the built-in `mcp.json`.
const PROGRAM: &str = "GAVEL_PROGRAM";

/// The token of the GitHub server, and where GitHub is.
const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
const GITHUB_URL: &str = "GITHUB_URL";

/// What contains the commands of the shell server.
const SHELL_SANDBOX: &str = "SHELL_SANDBOX";

/// Outside a sandbox a command can do all that gavel's user can, so a person approves each one, whatever a confirmed plan
/// names, unless the entry of the shell server says something else.
fn ask_for_each_command(servers: &mut McpConfig) {
    for server in &mut servers.servers {
        let Some(TransportConfig::Stdio { command, args, env, .. }) = &server.transport else {
            continue;
        };
        if own_arguments(command, args, "shell").is_some() && is_at_host(args, env) {
            let tool = server.gavel.tools.entry("run_shell_command".to_owned()).or_default();
            tool.approval = tool.approval.or(Some(ApprovalDefault::Required));
        }
    }
}

fn is_at_host(args: &[String], env: &[(String, SecretString)]) -> bool {
    let by_variable = env
        .iter()
        .any(|(name, value)| name == SHELL_SANDBOX && value.expose_secret() == "host");
    let by_option = args.windows(2).any(|pair| pair == ["--sandbox", "host"]);
    by_variable || by_option || args.iter().any(|arg| arg == "--sandbox=host")
}

/// A setting of the model that `mcp.json` can name, wherever it was set: the web server searches with the same one. Not
/// the demo model, which cannot search.
fn model_setting(model: &ModelConfig, name: &str) -> Option<String> {
    if name == "GEMINI_MODEL" {
        return (!matches!(model.provider, Provider::Demo { .. })).then(|| model.name.clone());
    }
    let mut providers = [Some(&model.provider), model.other.as_ref()].into_iter().flatten();
    providers.find_map(|provider| match (provider, name) {
        (Provider::Developer { api_key, .. }, "GEMINI_API_KEY")
        | (Provider::VertexExpress { api_key, .. }, "VERTEX_AI_API_KEY") => Some(api_key.expose_secret().to_owned()),
        (Provider::Developer { base_url, .. }, "GEMINI_BASE_URL")
        | (Provider::VertexExpress { base_url, .. }, "VERTEX_AI_ENDPOINT") => base_url.clone(),
        (Provider::Vertex { project, .. }, "VERTEX_AI_PROJECT_ID") => Some(project.clone()),
        (Provider::Vertex { location, .. }, "VERTEX_AI_LOCATION") => Some(location.clone()),
        (Provider::Vertex { endpoint, .. }, "VERTEX_AI_ENDPOINT") => endpoint.clone(),
        (
            Provider::Demo { .. }
            | Provider::Developer { .. }
            | Provider::VertexExpress { .. }
            | Provider::Vertex { .. },
            _,
        ) => None,
    })
}

/// Number of arguments in `mcp-server NAME`.
const OWN_ARGUMENTS: usize = 2;

/// How many of an entry's arguments name the bundled server that it starts; `None` if it starts another one.
pub(super) fn own_arguments(command: &str, args: &[String], name: &str) -> Option<usize> {
    let program = Path::new(command).file_name()?.to_str()?;
    if program == format!("gavel-mcp-{name}") {
        return Some(0);
    }
    let first = args.iter().map(String::as_str).take(OWN_ARGUMENTS);
    first.eq(["mcp-server", name]).then_some(OWN_ARGUMENTS)
}

/// What the built-in entry of a bundled server says for safety holds also if an entry of the operator's own starts it, unless
/// that entry says something else: which tools require approval, which arguments a planning session binds (an empty `scope`
/// is none), and which the model does not see.
fn keep_safe(servers: &mut McpConfig, built_in: &McpConfig) {
    for server in &mut servers.servers {
        let Some(TransportConfig::Stdio { command, args, .. }) = &server.transport else {
            continue;
        };
        let starts = |bundled: &&ServerConfig| own_arguments(command, args, &bundled.name).is_some();
        let Some(bundled) = built_in.servers.iter().find(starts) else {
            continue;
        };
        for (tool, settings) in &bundled.gavel.tools {
            let own = server.gavel.tools.entry(tool.clone()).or_default();
            own.scope = own.scope.take().or_else(|| settings.scope.clone());
            own.approval = own.approval.or(settings.approval);
            if own.hidden.is_empty() {
                own.hidden.clone_from(&settings.hidden);
            }
        }
    }
}

/// The options that `mcp.json` does not contain.
pub(crate) fn options(config: &Config) -> McpOptions {
    McpOptions {
        pins: Some(config.mcp_pins.clone()),
        ..McpOptions::default()
    }
}

/// The settings of single tools in `mcp.json`, by server and tool.
///
/// # Errors
/// The `mcp.json` is invalid.
pub fn tool_settings(config: &Config) -> Result<BTreeMap<(String, String), ToolSettings>, FileError> {
    let servers = read(config)?.servers;
    let tools = servers.into_iter().flat_map(|server| {
        let name = server.name.to_string();
        let tools = server.gavel.tools.into_iter();
        tools.map(move |(tool, settings)| ((name.clone(), tool), settings))
    });
    Ok(tools.collect())
}

/// Reads the configuration of the servers. If several tenants can exist, a server that may treat users of the same name
/// as one user causes a warning. It is an error if that server acts as the user that gavel names.
pub(crate) fn read(config: &Config) -> Result<McpConfig, FileError> {
    let (mut servers, place) = read_file(config)?;
    if !config.auth.has_several_tenants() {
        return Ok(servers);
    }
    let file: Arc<str> = Arc::from(place.as_str());
    let mut invalid = Vec::new();
    for server in servers.servers.iter().filter(|server| server.off.is_none()) {
        let issue = |message: &str| ConfigIssue {
            file: Arc::clone(&file),
            line: None,
            pointer: format!("/mcpServers/{}/gavel/tenantUsers", server.name),
            message: message.to_owned(),
        };
        match (&server.gavel.identity, server.gavel.tenant_users) {
            (Identity::None, None) => servers.warnings.push(issue(
                "not set, and users of several tenants may exist: users of the same name are one user to this server; \
                 set it to true, or to false if the server does not distinguish users",
            )),
            (Identity::Argument(_) | Identity::Token, Some(false)) => invalid.push(issue(
                "false, and users of several tenants may exist: the server acts as the user that gavel names (`identity`), \
                 so users of the same name would be one user; remove it, or set it to true",
            )),
            (Identity::None, Some(_)) | (Identity::Argument(_) | Identity::Token, None | Some(true)) => {}
        }
    }
    match invalid.is_empty() {
        true => Ok(servers),
        false => Err(refused(&place, &invalid)),
    }
}

fn refused(place: &str, issues: &[ConfigIssue]) -> FileError {
    let lines: Vec<_> = issues.iter().map(|issue| format!("  {issue}")).collect();
    FileError(format!("{place} is invalid:\n{}", lines.join("\n")))
}

fn read_file(config: &Config) -> Result<(McpConfig, String), FileError> {
    let exposed = |secret: &Option<SecretString>| secret.as_ref().map(|secret| secret.expose_secret().to_owned());
    let variable = |name: &str| match name {
        // These are settings, which can also be in gavel.toml or in a file.
        IDENTITY_SECRET => exposed(&config.identity_secret),
        // As other variables, it may be set and empty.
        GITHUB_TOKEN => exposed(&config.github_token).or_else(|| config.dotenv.variable(name)),
        GITHUB_URL => Some(config.planning.github.as_str().trim_end_matches('/').to_owned()),
        PROGRAM => env::current_exe()
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok()),
        _ => model_setting(&config.model, name).or_else(|| config.dotenv.variable(name)),
    };
    let built_in = || McpConfig::from_file(BUILT_IN_PLACE, BUILT_IN, &variable);
    let (read, place) = match &config.mcp_config {
        None => (built_in(), BUILT_IN_PLACE.to_owned()),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| FileError(format!("{} cannot be read: {error}", path.display())))?;
            let place = path.display().to_string();
            (McpConfig::from_file(&place, &text, &variable), place)
        }
    };
    match read {
        Ok(mut servers) => {
            ask_for_each_command(&mut servers);
            if config.mcp_config.is_some() {
                let built_in = built_in().map_err(|issues| refused(BUILT_IN_PLACE, &issues))?;
                keep_safe(&mut servers, &built_in);
            }
            Ok((servers, place))
        }
        Err(issues) => Err(refused(&place, &issues)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn config(text: &str) -> McpConfig {
        McpConfig::from_json(text, &|name| Some(name.to_lowercase())).unwrap()
    }

    #[test]
    fn a_bundled_server_is_known_by_its_command() {
        let args = ["mcp-server", "github", "--url", "x"].map(str::to_owned);
        assert_eq!(own_arguments("/usr/bin/gavel", &args, "github"), Some(2));
        assert_eq!(own_arguments("/usr/bin/gavel", &args, "docker"), None);
        assert_eq!(own_arguments("/usr/bin/gavel-mcp-docker", &[], "docker"), Some(0));
    }

    /// PLANNING 6 and 10: a session does not leave its repository because an operator wrote an entry without `scope`.
    #[test]
    fn an_entry_for_a_bundled_server_is_as_safe_as_the_built_in_one_unless_it_says_otherwise() {
        let own = json!({
            "readIssue": {"scope": {}}, "createIssue": {"approval": "required"}, "closeIssue": {"approval": "not_required"},
        });
        let text = json!({"mcpServers": {
            "hub": {"command": "gavel", "args": ["mcp-server", "github"], "gavel": {"tools": own}},
            "other": {"command": "github"},
        }});
        let mut servers = config(&text.to_string());
        let built_in = config(BUILT_IN);
        keep_safe(&mut servers, &built_in);
        let hub = &servers.servers[0].gavel.tools;
        let github = built_in
            .servers
            .iter()
            .find(|server| &*server.name == "github")
            .unwrap();
        for tool in ["createPullRequest", "createIssue", "getFileContents"] {
            let scope = &hub[tool].scope;
            assert!(
                scope.as_ref().is_some_and(|scope| scope.len() >= 2),
                "{tool}: {scope:?}"
            );
            assert_eq!(*scope, github.gavel.tools[tool].scope);
        }
        assert_eq!(hub["readIssue"].scope, Some(BTreeMap::new()));
        assert_eq!(hub["createIssue"].approval, Some(ApprovalDefault::Required));
        assert_eq!(hub["createRepository"].approval, Some(ApprovalDefault::Required));
        assert_ne!(hub["closeIssue"].approval, Some(ApprovalDefault::Required));
        assert_eq!(*hub["configureGitClientInContainer"].hidden, ["token".into()]);
        assert!(servers.servers[1].gavel.tools.is_empty());
    }

    /// PLANNING 6: outside a sandbox each command asks, also if an entry of the operator's own starts the server.
    #[test]
    fn a_command_outside_a_sandbox_asks_wherever_the_level_was_set() {
        let shell = |args: &[&str], env: serde_json::Value, gavel: serde_json::Value| {
            let args = [&["mcp-server", "shell"], args].concat();
            let text = json!({"mcpServers": {"sh": {"command": "gavel", "args": args, "env": env, "gavel": gavel}}});
            let mut servers = config(&text.to_string());
            ask_for_each_command(&mut servers);
            let tool = servers.servers[0].gavel.tools.get("run_shell_command");
            tool.and_then(|tool| tool.approval)
        };
        let (none, host) = (json!({}), json!({"SHELL_SANDBOX": "host"}));
        let required = Some(ApprovalDefault::Required);
        assert_eq!(shell(&[], host.clone(), none.clone()), required);
        assert_eq!(shell(&["--sandbox", "host"], none.clone(), none.clone()), required);
        assert_eq!(shell(&["--sandbox=host"], none.clone(), none.clone()), required);
        assert_eq!(shell(&["--sandbox", "bwrap"], none.clone(), none.clone()), None);
        let never = json!({"tools": {"run_shell_command": {"approval": "not_required"}}});
        assert_ne!(shell(&[], host, never), required);
    }
}
