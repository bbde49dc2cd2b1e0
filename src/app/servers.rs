//! The configured MCP servers: the named `mcp.json`, or the built-in one.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use anyhow::{Context, anyhow};
use clap::builder::Resettable;
use clap::{Arg, Args, Command};
use gavel_mcp_shell::Level;
use gavel_reading::ReadError;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::servers;
use crate::adapters::gemini::Endpoint;
use crate::adapters::mcp::config::{IDENTITY_SECRET, Identity, ServerConfig, ToolSettings, TransportConfig};
use crate::adapters::mcp::{McpConfig, McpOptions, said};
use crate::config::{Config, FileError, ModelConfig, Provider};

/// The built-in `mcp.json`: the bundled servers, started from this program.
pub const BUILT_IN: &str = include_str!("../../mcp.json");
/// What messages call it.
const BUILT_IN_PLACE: &str = "mcp.json (built in)";

/// The path of this program, used by the built-in `mcp.json`.
const PROGRAM: &str = "GAVEL_PROGRAM";

/// The token of the GitHub server, and where GitHub is.
const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
const GITHUB_URL: &str = "GITHUB_URL";

/// A setting of the model that `mcp.json` can name, wherever it was set: the web server searches with the same one. Not
/// the demo model, which cannot search.
fn model_setting(model: &ModelConfig, name: &str) -> Option<String> {
    if name == "GEMINI_MODEL" {
        return (!matches!(model.provider, Provider::Demo { .. })).then(|| model.name.clone());
    }
    let default = match &model.provider {
        Provider::Gemini(endpoint) => Some(endpoint),
        Provider::Demo { .. } => None,
    };
    let mut endpoints = default.into_iter().chain(&model.other);
    endpoints.find_map(|endpoint| match (endpoint, name) {
        (Endpoint::Developer { api_key, .. }, "GEMINI_API_KEY")
        | (Endpoint::VertexExpress { api_key, .. }, "VERTEX_AI_API_KEY") => Some(api_key.expose_secret().to_owned()),
        (Endpoint::Developer { base_url, .. }, "GEMINI_BASE_URL")
        | (Endpoint::VertexExpress { base_url, .. }, "VERTEX_AI_ENDPOINT") => base_url.clone(),
        (Endpoint::Vertex { project, .. }, "VERTEX_AI_PROJECT_ID") => Some(project.clone()),
        (Endpoint::Vertex { location, .. }, "VERTEX_AI_LOCATION") => Some(location.clone()),
        (Endpoint::Vertex { endpoint, .. }, "VERTEX_AI_ENDPOINT") => endpoint.clone(),
        (Endpoint::Developer { .. } | Endpoint::VertexExpress { .. } | Endpoint::Vertex { .. }, _) => None,
    })
}

/// The options that `mcp.json` does not contain.
pub(crate) fn options(config: &Config) -> McpOptions {
    McpOptions {
        pins: Some(config.mcp_pins.clone()),
        ..McpOptions::default()
    }
}

/// What is known of single tools without asking a server.
pub struct KnownTools {
    configured: BTreeMap<(String, String), ToolSettings>,
    bundled: BTreeMap<String, ToolSettings>,
}

impl KnownTools {
    /// The settings of a tool: of `mcp.json`, and of the bundled server's tool with this name. The command of an entry
    /// does not say which server it starts, and to take another server's tool for a bundled one is the stricter error.
    pub fn of(&self, server: &str, tool: &str) -> ToolSettings {
        let own = self.configured.get(&(server.to_owned(), tool.to_owned())).cloned();
        let said = self.bundled.get(tool).cloned();
        own.unwrap_or_default().with(said.unwrap_or_default(), true)
    }
}

/// What `mcp.json` and the bundled servers say of single tools.
///
/// # Errors
/// The `mcp.json` is invalid.
pub fn known_tools(config: &Config) -> Result<KnownTools, FileError> {
    let servers = read(config)?.servers;
    let at_host = servers.iter().any(is_at_host);
    let servers = servers.into_iter().flat_map(|server| {
        let name = server.name.to_string();
        let tools = server.gavel.tools.into_iter();
        tools.map(move |(tool, settings)| ((name.clone(), tool), settings))
    });
    let listed = [
        gavel_mcp_docker::tools(),
        gavel_mcp_github::tools(),
        gavel_mcp_google::tools(),
    ]
    .concat();
    let shell = json!({"_meta": {"gavel/settings": gavel_mcp_shell::safety(Level::Host)}});
    let shell = at_host.then(|| (gavel_mcp_shell::NAME.to_owned(), shell));
    let listed = listed
        .iter()
        .filter_map(|tool| Some((tool.name.to_string(), serde_json::to_value(tool).ok()?)));
    let bundled = listed
        .chain(shell)
        .filter_map(|(name, definition)| Some((name, said(&definition).ok()??)));
    Ok(KnownTools {
        configured: servers.collect(),
        bundled: bundled.collect(),
    })
}

/// Is it a shell server without a sandbox, for which a person approves each command?
fn is_at_host(server: &ServerConfig) -> bool {
    let Some(TransportConfig::Stdio { args, env, .. }) = &server.transport else {
        return false;
    };
    let is_host = |(name, value): &(String, SecretString)| name == "SHELL_SANDBOX" && value.expose_secret() == "host";
    let args = args.join(" ");
    env.iter().any(is_host) || args.contains("--sandbox host") || args.contains("--sandbox=host")
}

/// Reads the configuration of the servers. If several tenants can exist, a server that may treat users of the same name
/// as one user causes a warning. It is an error if that server acts as the user that gavel names.
pub(crate) fn read(config: &Config) -> Result<McpConfig, FileError> {
    let (mut servers, place) = read_file(config)?;
    if !config.auth.has_several_tenants() {
        return Ok(servers);
    }
    let mut invalid = Vec::new();
    for server in servers.servers.iter().filter(|server| server.off.is_none()) {
        let issue = |found: &str, allowed: &str| ReadError {
            file: place.clone(),
            line: None,
            field: format!("mcpServers.{}.gavel.tenantUsers", server.name),
            found: found.to_owned(),
            allowed: allowed.to_owned(),
        };
        match (&server.gavel.identity, server.gavel.tenant_users) {
            (Identity::None, None) => servers.warnings.push(issue(
                "nothing, and users of several tenants may exist: users of the same name are one user to this server",
                "true, or false if the server does not distinguish users",
            )),
            (Identity::Argument(_) | Identity::Token, Some(false)) => invalid.push(issue(
                "false, and users of several tenants may exist: the server acts as the user that gavel names (`identity`), \
                 so users of the same name would be one user",
                "true, or nothing",
            )),
            (Identity::None, Some(_)) | (Identity::Argument(_) | Identity::Token, None | Some(true)) => {}
        }
    }
    match invalid.is_empty() {
        true => Ok(servers),
        false => Err(refused(&place, &invalid)),
    }
}

fn refused(place: &str, issues: &[ReadError]) -> FileError {
    let issues: Vec<_> = issues.iter().map(|issue| format!("  {issue}")).collect();
    FileError::new(&format!("{place} is invalid"), &issues)
}

fn read_file(config: &Config) -> Result<(McpConfig, String), FileError> {
    let exposed = |secret: &Option<SecretString>| secret.as_ref().map(|secret| secret.expose_secret().to_owned());
    let variable = |name: &str| match name {
        // These are settings, which can also be in gavel.toml or in a file.
        IDENTITY_SECRET => exposed(&config.identity_secret),
        // As other variables, it may be set and empty.
        GITHUB_TOKEN => exposed(&config.github.token).or_else(|| config.dotenv.variable(name)),
        GITHUB_URL => Some(config.github.url.as_str().trim_end_matches('/').to_owned()),
        PROGRAM => env::current_exe()
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok()),
        _ => model_setting(&config.model, name).or_else(|| config.dotenv.variable(name)),
    };
    let (read, place) = match &config.mcp_config {
        None => {
            let built_in = McpConfig::from_file(BUILT_IN_PLACE, BUILT_IN, &variable);
            (built_in, BUILT_IN_PLACE.to_owned())
        }
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| FileError(format!("{} cannot be read: {error}", path.display())))?;
            let place = path.display().to_string();
            (McpConfig::from_file(&place, &text, &variable), place)
        }
    };
    match read {
        Ok(servers) => Ok((servers, place)),
        Err(issues) => Err(refused(&place, &issues)),
    }
}

#[cfg(test)]
mod tests;

/// The options of the bundled server `name`, as its entry in `mcp.json` starts it. `None` if no entry starts it, or if it
/// is off, which its state says.
///
/// # Errors
/// The `mcp.json` or the options are invalid. The error has no value of an option: it can be a secret.
pub fn bundled<A: Args>(config: &Config, name: &str) -> anyhow::Result<Option<A>> {
    let servers = servers::read(config)?.servers;
    let entry = servers.into_iter().find_map(|server| match server.transport? {
        TransportConfig::Stdio { command, args, env, .. } => {
            let own = own_arguments(&command, &args, name)?;
            Some((args[own..].to_vec(), env))
        }
        TransportConfig::Http { .. } => None,
    });
    let parsed = entry.map(|(args, env)| {
        options_of(name, &args, &|variable| {
            let (_, value) = env.iter().find(|(name, _)| name == variable)?;
            Some(value.expose_secret().to_owned())
        })
    });
    parsed.transpose()
}

/// The options of a server that is started with these arguments and variables, and with nothing of this process's own.
///
/// # Errors
/// They are invalid. The error has no value of an option.
pub fn options_of<A: Args>(
    name: &str,
    args: &[String],
    variable: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<A> {
    let command = A::augment_args(Command::new("server").no_binary_name(true));
    let given: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| option(arg, args, variable))
        .collect();
    let command = command.mut_args(|arg| arg.env(Resettable::Reset));
    let parsed = command.try_get_matches_from(args.iter().cloned().chain(given));
    let options = parsed.and_then(|matches| A::from_arg_matches(&matches));
    // clap's own text quotes the value.
    options
        .map_err(|error| anyhow!("{:?}", error.kind()))
        .with_context(|| format!("the options of the {name} server are invalid"))
}

/// `--option=value`, if its variable is set and no argument has it.
fn option(arg: &Arg, args: &[String], variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (long, name) = (arg.get_long()?, arg.get_env()?.to_str()?);
    let is_given = |argument: &String| argument.split('=').next() == Some(&format!("--{long}"));
    if args.iter().any(is_given) {
        return None;
    }
    Some(format!("--{long}={}", variable(name)?))
}

/// Number of arguments in `mcp-server NAME`.
const OWN_ARGUMENTS: usize = 2;

/// How many of an entry's arguments name the bundled server that it starts; `None` if it starts another one.
fn own_arguments(command: &str, args: &[String], name: &str) -> Option<usize> {
    let program = Path::new(command).file_name()?.to_str()?;
    if program == format!("gavel-mcp-{name}") {
        return Some(0);
    }
    let first = args.iter().map(String::as_str).take(OWN_ARGUMENTS);
    first.eq(["mcp-server", name]).then_some(OWN_ARGUMENTS)
}

#[cfg(test)]
mod bundled_tests {
    #![allow(clippy::unwrap_used)]

    use gavel_mcp_github::Args;

    use super::*;

    #[test]
    fn a_bundled_server_is_known_by_its_command() {
        let args = ["mcp-server", "github", "--url", "x"].map(str::to_owned);
        assert_eq!(own_arguments("/usr/bin/gavel", &args, "github"), Some(2));
        assert_eq!(own_arguments("/usr/bin/gavel", &args, "docker"), None);
        assert_eq!(own_arguments("/usr/bin/gavel-mcp-docker", &[], "docker"), Some(0));
    }

    /// What doctor asks with is what the server is started with.
    #[test]
    fn an_argument_precedes_a_variable_as_in_the_server_itself() {
        let args = ["--timeout-seconds".to_owned(), "7".to_owned()];
        let env = |name: &str| match name {
            "GITHUB_TOKEN" => Some("-t=x".to_owned()),
            "GITHUB_TIMEOUT_SECONDS" => Some("9".to_owned()),
            _ => None,
        };
        let options: Args = options_of("github", &args, &env).unwrap();
        assert_eq!(options.token.unwrap().expose(), "-t=x");
        assert_eq!(options.timeout_seconds.as_deref(), Some("7"));
        assert!(options.app_id.is_none());
    }

    #[test]
    fn an_error_does_not_quote_a_value() {
        let args = ["--tokn=canary".to_owned()];
        let error = options_of::<Args>("github", &args, &|_| None).unwrap_err();
        assert!(!format!("{error:#}").contains("canary"), "{error:#}");
    }
}
