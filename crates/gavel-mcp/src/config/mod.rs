//! `mcp.json`: the servers, how they are reached, and how far they are trusted.
//!
//! The file format is shared with other programs. gavel's additions are under one key, `gavel`, in each server's entry.
//! Unknown keys of an entry belong to other programs and only cause warnings. Unknown keys under `gavel` are errors.

mod read;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gavel_reading::{
    Content, Entries, FLAG, List, Mapped, Node, OneOf, ReadError, Record, Scalar, TEXT, Whole, record,
};
use reqwest::header::HeaderName;
use secrecy::SecretString;
use url::Url;

use super::connection::place;
pub use crate::domain::tool_settings::ToolSettings;

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
    pub warnings: Vec<ReadError>,
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

record! {
    /// The settings under `gavel`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Settings {
        /// How the server learns the acting user.
        identity: Identity = "identity": IDENTITY, or Identity::None;
        /// One connection for all users, or one for each.
        connection: Connection = "connection": OneOf(&[
            ("shared", Connection::Shared),
            ("per_user", Connection::PerUser),
        ]), or Connection::Shared;
        /// Does the server receive users together with their tenant, so that one name in two tenants means two users?
        /// Absent: yes, if `identity` is not `none`.
        tenant_users: Option<bool> = "tenantUsers": FLAG;
        /// Are the server's annotations trusted?
        trust_hints: bool = "trustHints": FLAG;
        /// Do callers receive the first line of the server's error messages?
        expose_errors: bool = "exposeErrors": FLAG;
        /// Maximum concurrent calls.
        max_concurrent: usize = "maxConcurrent": Whole(1..=65_536), or 256;
        /// Is a tool whose definition changed held back until an operator accepts it?
        pin: bool = "pin": FLAG;
        /// Alternative lists of required variables. The server is off unless all variables of one list are set. Empty:
        /// none are required.
        required_env: Vec<Vec<String>> = "requiredEnv": REQUIRED_ENV;
        /// Variables and headers whose values are secret although their names do not say so.
        secrets: Vec<String> = "secrets": List(TEXT);
        /// Settings of single tools. They override hints.
        tools: BTreeMap<String, ToolSettings> = "tools": Mapped(
            Entries(Record("a map of a tool's settings", ToolSettings::read)),
            |tools: Vec<_>| tools.into_iter().collect(),
        );
    }
}

const REQUIRED_ENV: Scalar<Vec<Vec<String>>> = Scalar {
    allowed: "a list of alternatives, each a list of variables, such as [[\"ID\", \"SECRET\"], [\"KEY\"]]",
    read: |node| {
        let names = |node: &Node| {
            let names: Option<Vec<_>> = node.items()?.iter().map(TEXT.read).collect();
            names.filter(|names| !names.is_empty())
        };
        node.items()?.iter().map(names).collect()
    },
};

const IDENTITY: Scalar<Identity> = Scalar {
    allowed: "\"none\", \"token\" or {\"argument\": \"NAME\"}",
    read: |node| match &node.content {
        Content::Text(word) if word == "none" => Some(Identity::None),
        Content::Text(word) if word == "token" => Some(Identity::Token),
        Content::Map(entries) => match &entries[..] {
            [(key, name)] if key.name == "argument" => {
                let name = (TEXT.read)(name).filter(|name| !name.is_empty())?;
                Some(Identity::Argument(name.into()))
            }
            _ => None,
        },
        _ => None,
    },
};

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

impl McpConfig {
    /// Reads the text of a file of this name, which errors show. `env` returns the value of a variable, for `${VAR}`
    /// and for the variables that are passed to children.
    ///
    /// # Errors
    /// Every error in the file, each with its position.
    pub fn from_file(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<ReadError>> {
        read::read(file, text, env)
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

// Expands `${VAR}` and `${VAR:-default}` in the values of `mcp.json`. `${env:VAR}`, the syntax of other programs, has
// the same meaning.

/// Replaces every `${…}` of `text`. Values are not expanded again, so a variable's value cannot refer to another
/// variable.
///
/// # Errors
/// A variable without a value, or a `${` without an end.
fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unexpandable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let inner = &rest[start + 2..];
        let end = inner.find('}').ok_or(Unexpandable::Open)?;
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if !is_name(name) {
            return Err(Unexpandable::Name(name.to_owned()));
        }
        // As in a shell, `:-` also applies to a variable that is set but empty.
        let value = env(name).filter(|value| default.is_none() || !value.is_empty());
        match (value, default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => return Err(Unexpandable::Undefined(name.to_owned())),
        }
        rest = &inner[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Why a value could not be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unexpandable {
    Undefined(String),
    Name(String),
    Open,
}

impl Unexpandable {
    /// What was found.
    fn found(&self) -> String {
        match self {
            Self::Undefined(name) => format!("the variable {name}, which is not set"),
            Self::Name(name) => format!("the variable `{name}`"),
            Self::Open => "`${` without `}`".to_owned(),
        }
    }

    /// What is allowed.
    fn allowed(&self) -> String {
        match self {
            Self::Undefined(name) => format!("a variable that is set, or ${{{name}:-default}}"),
            Self::Name(_) | Self::Open => "${NAME} or ${env:NAME}".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("example".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_defaults_and_plain_text_are_put_together() {
        let all = "http://${HOST}:${PORT:-80}/${EMPTY}${EMPTY:-x}$HOST";
        assert_eq!(expand(all, &env).unwrap(), "http://example:80/x$HOST");
    }

    #[test]
    fn variables_are_also_written_as_other_programs_do() {
        assert_eq!(expand("${env:HOST}/${env:PORT:-80}", &env).unwrap(), "example/80");
        assert_eq!(expand("${env:NOPE}", &env), Err(Unexpandable::Undefined("NOPE".into())));
        assert_eq!(
            expand("${input:key}", &env),
            Err(Unexpandable::Name("input:key".into()))
        );
    }

    #[test]
    fn a_value_is_not_expanded_again() {
        assert_eq!(expand("${NESTED}", &env).unwrap(), "${HOST}");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(expand("a${NOPE}", &env), Err(Unexpandable::Undefined("NOPE".into())));
        assert_eq!(expand("a${NOPE", &env), Err(Unexpandable::Open));
        assert_eq!(expand("${A B}", &env), Err(Unexpandable::Name("A B".into())));
        assert!(
            Unexpandable::Undefined("NOPE".into())
                .allowed()
                .contains("${NOPE:-default}")
        );
    }
}
