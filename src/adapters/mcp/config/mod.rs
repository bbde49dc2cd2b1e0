//! `mcp.json`: the servers, how they are reached, and how far they are trusted.
//!
//! The file format is shared with other programs. gavel's additions are under one key, `gavel`, in each server's entry.
//! Unknown keys of an entry belong to other programs and only cause warnings. Unknown keys under `gavel` are errors.

mod expand;
mod lenient;
mod read;
mod stricter;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderName;
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::place::place;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::session_value::SessionValue;
use crate::domain::times::Times;
use crate::domain::tool::{AmountsTo, ApprovalDefault, Idempotency};

/// Environment variable with the secret that signs identity tokens.
pub const IDENTITY_SECRET: &str = "GAVEL_IDENTITY_SECRET";

/// The variables of gavel's own environment that a stdio child receives.
const PASSED_ON: [&str; 5] = ["PATH", "HOME", "USER", "LANG", "TMPDIR"];

/// All servers, validated.
#[derive(Clone, Debug, Default)]
pub struct McpConfig {
    /// Ordered by name.
    pub servers: Vec<ServerConfig>,
    /// Suspicious but harmless settings, for the log and `gavel doctor`.
    pub warnings: Vec<ConfigIssue>,
    /// Signs identity tokens. Set if a server requires them.
    pub(super) identity_secret: Option<SecretString>,
    /// The variables every stdio child receives.
    pub(super) base_env: Vec<(&'static str, String)>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its key in `mcpServers`.
    pub name: Arc<str>,
    /// How it is reached; `None` if it is off.
    pub transport: Option<TransportConfig>,
    /// Why it is not started (`disabled`, or a required variable is missing).
    pub off: Option<String>,
    /// Default call timeout, for tools without their own (`timeout`, milliseconds).
    pub timeout: Duration,
    /// Only these tools are offered (`includeTools`).
    pub include: Option<Vec<String>>,
    /// These tools are not offered (`excludeTools`).
    pub exclude: Vec<String>,
    /// The variables used in its arguments, environment, URL and headers. They may be secret.
    pub(super) expanded: Vec<(String, SecretString)>,
    /// gavel's own settings.
    pub gavel: Settings,
}

/// How a server is reached.
#[derive(Clone)]
pub enum TransportConfig {
    /// A child process that communicates over stdin and stdout.
    Stdio {
        /// Program, looked up in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment variables, in addition to the five that every child receives.
        env: Vec<(String, SecretString)>,
        /// Its working directory.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint.
        url: Url,
        /// Sent with every request.
        headers: Vec<(HeaderName, SecretString)>,
    },
}

/// The settings under `gavel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How the server learns the acting user.
    pub identity: Identity,
    /// One connection for all users, or one for each.
    pub connection: Connection,
    /// Does the server receive users together with their tenant, so that one name in two tenants means two users?
    /// Absent: yes, if `identity` is not `none`.
    pub tenant_users: Option<bool>,
    /// Are the server's annotations trusted?
    pub trust_hints: bool,
    /// Do callers receive the first line of the server's error messages?
    pub expose_errors: bool,
    /// Maximum concurrent calls.
    pub max_concurrent: usize,
    /// Is a tool whose definition changed held back until an operator accepts it?
    pub pin: bool,
    /// Alternative lists of required variables. The server is off unless all variables of one list are set. Empty: none
    /// are required.
    pub required_env: Vec<Vec<String>>,
    /// Variables and headers whose values are secret although their names do not say so.
    pub secrets: Vec<String>,
    /// Settings of single tools. They override hints.
    pub tools: BTreeMap<String, ToolSettings>,
}

/// How a server learns the acting user. `_meta["gavel/user_id"]` is always sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// `_meta` only.
    #[default]
    None,
    /// gavel sets this argument to the user's id. The model does not see the argument.
    Argument(Arc<str>),
    /// A signed, short-lived token in `_meta["gavel/identity"]`.
    Token,
}

/// How connections are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// One for all users.
    #[default]
    Shared,
    /// One for each user, closed when idle.
    PerUser,
}

/// Settings of one tool (`gavel.tools.{name}`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSettings {
    /// Does a call have a side effect?
    pub side_effect: Option<bool>,
    /// Does a call require approval?
    pub approval: Option<ApprovalDefault>,
    /// Call timeout.
    pub timeout: Option<Duration>,
    /// May a call be repeated?
    pub idempotency: Option<Idempotency>,
    /// Arguments that the model neither sees nor gives: the server sets them itself.
    pub hidden: Vec<Arc<str>>,
    /// Paths of the arguments that name recipients.
    pub recipients: Vec<ArgumentPath>,
    /// Paths of the arguments that a grant covers with any value.
    pub free_arguments: Vec<ArgumentPath>,
    /// Paths of the arguments that must be a single line.
    pub single_line: Vec<ArgumentPath>,
    /// The arguments that contain times.
    pub times: Option<Times>,
    /// What arguments have to match in a planning session; `None` if it is not said.
    pub scope: Option<Vec<(ArgumentPath, SessionValue)>>,
    /// Where a result has what a later argument of this name may then be.
    pub creates: BTreeMap<Arc<str>, ArgumentPath>,
    /// Values of arguments that have the effect of another tool.
    pub amounts_to: Vec<AmountsTo>,
    /// Does the server limit the call to the repositories that gavel names to it?
    pub repositories: Option<bool>,
    /// The tool that reports whether this one can be called for a user.
    pub preflight: Option<Arc<str>>,
}

/// An error or a warning about one place of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}{}: {}{message}",
    self.line.map(|line| format!(":{line}")).unwrap_or_default(),
    if self.pointer.is_empty() { String::new() } else { format!("{}: ", self.pointer) }
)]
pub struct ConfigIssue {
    /// The file, as it is named in messages.
    pub file: Arc<str>,
    /// The line of the file, from 1; `None` if it is not in a file.
    pub line: Option<usize>,
    /// JSON pointer into the file; empty for the whole file.
    pub pointer: String,
    /// What was found, and what is allowed.
    pub message: String,
}

impl McpConfig {
    /// Reads the text of a file of this name, which errors show. `env` returns the value of a variable, for `${VAR}`
    /// and for the variables that are passed to children.
    ///
    /// # Errors
    /// Every error in the file, each with its position.
    pub fn from_file(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<ConfigIssue>> {
        read::read(file, text, env)
    }
}

impl ToolSettings {
    /// What a server says of its own tool, with the keys of `gavel.tools.NAME`.
    ///
    /// # Errors
    /// Every error, each with its place.
    pub(super) fn said(value: &Value) -> Result<Self, String> {
        read::said(value)
    }
}

impl Settings {
    /// Does the server receive users together with their tenant?
    #[must_use]
    pub fn tells_tenants(&self) -> bool {
        self.tenant_users.unwrap_or(self.identity != Identity::None)
    }
}

impl ServerConfig {
    /// Could this server offer a tool of this name?
    pub(super) fn may_offer(&self, tool: &str) -> bool {
        self.include
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name == tool))
            && !self.exclude.iter().any(|name| name == tool)
    }
}

impl TransportConfig {
    /// The program or URL, without secrets.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Stdio { command, .. } => command.clone(),
            Self::Http { url, .. } => place(url),
        }
    }
}

impl fmt::Debug for TransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}
