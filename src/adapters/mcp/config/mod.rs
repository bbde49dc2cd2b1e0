//! `mcp.json`: which servers there are, how they are reached, and how far they are trusted.
//!
//! The file is the ecosystem's; what gavel adds stands under one key, `gavel`, in each server's
//! entry. Unknown keys of an entry are other programs' and only warned of; unknown keys under
//! `gavel` are mistakes.

mod expand;
mod lenient;
mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderName;
use secrecy::SecretString;
use url::Url;

use super::secrets::place;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::times::Times;
use crate::domain::tool::{ApprovalDefault, Idempotency};

/// Environment variable with the secret that signs identity tokens.
pub const IDENTITY_SECRET: &str = "GAVEL_IDENTITY_SECRET";

/// What a stdio child gets of gavel's own environment (DESIGN.md section 5).
const PASSED_ON: [&str; 5] = ["PATH", "HOME", "USER", "LANG", "TMPDIR"];

/// All servers, checked.
#[derive(Clone, Debug, Default)]
pub struct McpConfig {
    /// In the order of their names.
    pub servers: Vec<ServerConfig>,
    /// What is odd but does no harm, for the log and `gavel doctor`.
    pub warnings: Vec<ConfigIssue>,
    /// Signs identity tokens; present when a server asks for them.
    pub(super) identity_secret: Option<SecretString>,
    /// The variables every stdio child gets.
    pub(super) base_env: Vec<(&'static str, String)>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its key in `mcpServers`.
    pub name: Arc<str>,
    /// How it is reached; `None` when it is off.
    pub transport: Option<TransportConfig>,
    /// Why it is not started (`disabled`, or a variable it needs is missing).
    pub off: Option<String>,
    /// Longest call, where the tool's own settings say nothing (`timeout`, milliseconds).
    pub timeout: Duration,
    /// Only these tools are taken (`includeTools`).
    pub include: Option<Vec<String>>,
    /// These are not (`excludeTools`).
    pub exclude: Vec<String>,
    /// Values of variables that stand in its arguments, variables, URL and headers; they may be secret.
    pub(super) expanded: Vec<SecretString>,
    /// Our own settings.
    pub gavel: Settings,
}

/// How a server is reached.
#[derive(Clone)]
pub enum TransportConfig {
    /// A child process that speaks over stdin and stdout.
    Stdio {
        /// Program, looked up in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables, beside the five that every child gets.
        env: Vec<(String, SecretString)>,
        /// Where it starts.
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
    /// How the server learns who acts.
    pub identity: Identity,
    /// One connection for all users, or one for each.
    pub connection: Connection,
    /// Is it told users together with their tenant, so that one name in two tenants is two users? Absent: where it learns who
    /// acts (`identity`).
    pub tenant_users: Option<bool>,
    /// Do the server's annotations count?
    pub trust_hints: bool,
    /// Do callers get the first line of what it says of its failures?
    pub expose_errors: bool,
    /// Calls at one time.
    pub max_concurrent: usize,
    /// Is a tool whose definition changed held back until an operator accepts it?
    pub pin: bool,
    /// The variables without which the server is off: one of these lists has to be set whole. None: it needs nothing.
    pub needs: Vec<Vec<String>>,
    /// What is known of single tools; it overrides hints.
    pub tools: BTreeMap<String, ToolSettings>,
}

/// How a server learns who acts. `_meta["gavel/user_id"]` is sent in every case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// `_meta` only.
    #[default]
    None,
    /// Code puts the user's id into this argument, which the model does not see.
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
    /// Does a call change something?
    pub side_effect: Option<bool>,
    /// Must a person agree?
    pub approval: Option<ApprovalDefault>,
    /// Longest call.
    pub timeout: Option<Duration>,
    /// May a call be repeated?
    pub idempotency: Option<Idempotency>,
    /// Paths of the arguments that name recipients.
    pub recipients: Vec<ArgumentPath>,
    /// Paths of the arguments that leave for good does not cover.
    pub ungrantable: Vec<ArgumentPath>,
    /// Paths of the arguments that must be one line.
    pub one_line: Vec<ArgumentPath>,
    /// The arguments that hold times.
    pub times: Option<Times>,
    /// The tool that tells whether this one can be called for a user at all.
    pub ready: Option<Arc<str>>,
}

/// Something wrong, or odd, at one place of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mcp.json{}{pointer}: {message}", self.line.map(|line| format!(" line {line}, ")).unwrap_or_default())]
pub struct ConfigIssue {
    /// The line of the file, from 1; `None` for what is in no file.
    pub line: Option<usize>,
    /// JSON pointer into the file; empty for the whole.
    pub pointer: String,
    /// What was found and what is allowed.
    pub message: String,
}

impl McpConfig {
    /// Reads `mcp.json`. `env` gives the value of a variable, for `${VAR}` and for the few
    /// variables that are passed on to children.
    ///
    /// # Errors
    /// Every mistake in the file, each with its place.
    pub fn from_json(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<ConfigIssue>> {
        read::read(text, env)
    }
}

impl Settings {
    /// Is the server told users together with their tenant?
    #[must_use]
    pub fn tells_tenants(&self) -> bool {
        self.tenant_users.unwrap_or(self.identity != Identity::None)
    }
}

impl ServerConfig {
    /// Could this server offer a tool of that name?
    pub(super) fn may_offer(&self, tool: &str) -> bool {
        self.include
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name == tool))
            && !self.exclude.iter().any(|name| name == tool)
    }
}

impl TransportConfig {
    /// Where it is, without anything secret: program or URL.
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
