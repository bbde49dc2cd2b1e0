//! `mcp.json`: the servers, how they are reached, and how far they are trusted.
//!
//! The file format is shared with other programs. gavel's additions are under one key, `gavel`, in each server's entry.
//! Unknown keys of an entry belong to other programs and only cause warnings. Unknown keys under `gavel` are errors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gavel_reading::{
    At, Content, Entries, Errors, FLAG, Fields, List, Mapped, Node, OneOf, Parser, ReadError, Record, Scalar, TEXT,
    Whole, With, json, nearest, quoted, read_file, record,
};
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;
use url::Url;

use super::connection::place;
use crate::domain::policy::AGENTS;
use crate::domain::tool_settings::MILLIS;
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
        read(file, text, env)
    }
}

impl Settings {
    /// Does the server receive users together with their tenant?
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

/// Default call timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A shorter HS256 secret is weaker than the hash (RFC 7518 section 3.2).
const SECRET_BYTES: usize = 32;

/// The keys that say how a server is reached. Those of an entry that is off are not read.
const TRANSPORT: [&str; 8] = ["type", "command", "args", "env", "cwd", "url", "httpUrl", "headers"];

fn read(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<McpConfig, Vec<ReadError>> {
    let reader = Reader {
        file,
        env,
        warnings: RefCell::default(),
        expanded: RefCell::default(),
    };
    let parsed = json::parse(&json::plain(text));
    let (servers, identity_secret) = read_file(file, "JSON", parsed, |at| reader.servers(at))?;
    Ok(McpConfig {
        servers,
        warnings: reader.warnings.into_inner().into_vec(file),
        identity_secret,
        base_env: PASSED_ON
            .iter()
            .filter_map(|name| env(name).map(|value| (*name, value)))
            .collect(),
    })
}

struct Reader<'a> {
    file: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    warnings: RefCell<Errors>,
    /// The variables used in the current entry.
    expanded: RefCell<Vec<(String, SecretString)>>,
}

impl Reader<'_> {
    fn servers(&self, root: &At<'_>) -> Option<(Vec<ServerConfig>, Option<SecretString>)> {
        let mut servers: Vec<ServerConfig> = Vec::new();
        let mut identity_secret = None;
        // The keys of other programs are theirs.
        root.open_record(|file| {
            // VS Code's name for the same key.
            let (own, theirs) = (file.get("mcpServers"), file.get("servers"));
            if let (Some(_), Some(theirs)) = (&own, &theirs) {
                self.warn(
                    theirs,
                    "`servers` beside `mcpServers`",
                    "one of the two; `servers` is ignored",
                );
            }
            let Some(all) = own.or(theirs) else {
                file.missing(
                    "mcpServers",
                    "the servers by name (`servers`, as VS Code calls them, is read too)",
                );
                return Some(());
            };
            for (name, entry) in all.entries()? {
                let Some(server) = self.server(name, &entry) else {
                    continue;
                };
                match servers.iter().any(|known| known.name == server.name) {
                    true => entry.error(format!("a second server `{}`", server.name), "each name once"),
                    false => {
                        if identity_secret.is_none() && server.off.is_none() && server.gavel.identity == Identity::Token
                        {
                            identity_secret = self.identity_secret(&entry);
                        }
                        servers.push(server);
                    }
                }
            }
            Some(())
        })?;
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        Some((servers, identity_secret))
    }

    fn warn(&self, at: &At<'_>, found: &str, allowed: &str) {
        at.reporting_to(&self.warnings).error(found, allowed);
    }

    fn server(&self, name: &str, at: &At<'_>) -> Option<ServerConfig> {
        // Names of tools, URLs and commands have no white space.
        let one_word = name.split_whitespace().collect::<Vec<_>>().join("-");
        if one_word != *name && !one_word.is_empty() {
            self.warn(
                at,
                "a name with white space",
                &format!("a name without; the name `{one_word}` is used"),
            );
        }
        if one_word == AGENTS {
            at.error(
                format!("the name `{AGENTS}`"),
                format!("another name: a policy names agents `{AGENTS}__NAME`"),
            );
            return None;
        }
        if one_word.is_empty() || one_word.len() > 64 || one_word.chars().any(char::is_control) {
            let allowed = "a server's name of 1 to 64 bytes, without control characters";
            at.error(format!("the name {}", quoted(name)), allowed);
        }
        let (server, rest) = at.open_record(|entry| self.entry(&one_word, entry))?;
        for key in &rest.unknown {
            // Other clients have more keys. But a misspelled one would change what this server does.
            let meant = match key.name.as_str() {
                "cmd" => Some("command"),
                name => nearest(name, rest.known.iter().copied()),
            };
            match meant {
                Some(meant) => rest.report(key, &format!("did you mean `{meant}`?")),
                None => rest
                    .reporting_to(&self.warnings)
                    .report(key, "a key of another program, which is ignored"),
            }
        }
        server
    }

    fn entry(&self, name: &str, entry: &Fields<'_>) -> Option<ServerConfig> {
        let own = Record("a map of gavel's settings", Settings::read);
        let empty = Node::bare(Content::Map(Vec::new()));
        let gavel = match entry.get("gavel") {
            Some(at) => own.parse(&at),
            None => own.parse(&entry.at.holding(&empty)),
        };
        self.warn_of_recipients(entry);
        let disabled = entry.take("disabled", FLAG).unwrap_or(false);
        let enabled = entry.take("enabled", FLAG).unwrap_or(true);
        let timeout = entry.take("timeout", MILLIS).unwrap_or(DEFAULT_TIMEOUT);
        if let Some(at) = entry.get("timeout").filter(|_| timeout < Duration::from_secs(1)) {
            let ms = timeout.as_millis();
            self.warn(
                &at,
                &format!("{ms} milliseconds"),
                &format!("{} for {ms} seconds", ms * 1000),
            );
        }
        let include = entry.take("includeTools", List(TEXT));
        let exclude = entry.take("excludeTools", List(TEXT)).unwrap_or_default();
        entry.known(&TRANSPORT);
        // For people.
        entry.known(&["description"]);
        let required = gavel.as_ref().map_or(&[][..], |gavel| &gavel.required_env);
        let off = match disabled || !enabled {
            true => Some(format!("disabled in {}", self.file)),
            false => self.lacks(required, entry),
        };
        // An entry that is off may use unset variables.
        self.expanded.take();
        let transport = if off.is_some() { None } else { self.transport(entry) };
        Some(ServerConfig {
            name: Arc::from(name),
            transport,
            off,
            timeout,
            include,
            exclude,
            expanded: self.expanded.take(),
            gavel: gavel?,
        })
    }

    fn warn_of_recipients(&self, entry: &Fields<'_>) {
        let Some(gavel) = entry.get("gavel") else { return };
        let tools = gavel.open_record(|gavel| gavel.get("tools")?.entries());
        for (_, tool) in tools.and_then(|(tools, _)| tools).into_iter().flatten() {
            let lacks =
                tool.open_record(|tool| Some(tool.get("recipients").is_some() && tool.get("freeArguments").is_none()));
            if let Some((Some(true), _)) = lacks {
                let allowed = "`freeArguments` too: a grant covers only calls that set nothing besides the recipients";
                self.warn(&tool, "`recipients` without `freeArguments`", allowed);
            }
        }
    }

    /// The required variables that are missing both in gavel's environment and in the entry's `env`. If one alternative
    /// is partly set, only its missing variables.
    fn lacks(&self, required: &[Vec<String>], entry: &Fields<'_>) -> Option<String> {
        let in_entry = |name: &str| match &entry.at.node.at(&format!("/env/{name}")).content {
            // Unset variables in it are reported where the value is used.
            Content::Text(text) => expand(text, self.env).ok(),
            _ => None,
        };
        let given = |name: &str| {
            let mut values = (self.env)(name).into_iter().chain(in_entry(name));
            values.any(|value| !value.is_empty())
        };
        let is_set = |name: &&String| given(name) || given(&format!("{name}_FILE"));
        let missing: Vec<Vec<&str>> = required
            .iter()
            .map(|all| all.iter().filter(|name| !is_set(name)).map(String::as_str).collect())
            .collect();
        if missing.is_empty() || missing.iter().any(Vec::is_empty) {
            return None;
        }
        let begun = required
            .iter()
            .zip(&missing)
            .find(|(all, missing)| missing.len() < all.len());
        if let Some((all, missing)) = begun {
            let set: Vec<_> = all.iter().filter(is_set).map(String::as_str).collect();
            return Some(format!(
                "needs {} in addition to {}",
                missing.join(" and "),
                set.join(" and ")
            ));
        }
        if let [one] = &missing[..]
            && let [name] = one[..]
        {
            return Some(format!("needs {name}, which is not set"));
        }
        let lists: Vec<_> = missing.iter().map(|missing| missing.join(" and ")).collect();
        Some(format!("needs {}; none of them is set", lists.join(", or ")))
    }

    fn transport(&self, entry: &Fields<'_>) -> Option<TransportConfig> {
        let command = entry.get("command");
        // `httpUrl` is Gemini CLI's name for streamable HTTP. It takes precedence if both are present.
        let url = entry.get("httpUrl").or_else(|| entry.get("url"));
        if let Some(at) = entry.get("type") {
            let fits = match TEXT.parse(&at)?.as_str() {
                "stdio" => command.is_some(),
                "http" | "streamable-http" | "streamableHttp" | "streamable_http" => url.is_some(),
                _ => false,
            };
            if !fits {
                at.invalid("`stdio` with a `command`, `http` (streamable HTTP, not sse) with a `url`");
                return None;
            }
        }
        match (command, url) {
            (Some(command), None) => self.stdio(&command, entry),
            (None, Some(url)) => self.http(&url, entry),
            (command, _) => {
                let found = if command.is_some() { "both" } else { "neither" };
                entry
                    .at
                    .error(found, "a `command` (stdio) or a `url` (streamable HTTP)");
                None
            }
        }
    }

    fn stdio(&self, command: &At<'_>, entry: &Fields<'_>) -> Option<TransportConfig> {
        let program = self.expanded(command);
        if program.as_deref() == Some("") {
            command.invalid("text that is not empty");
        }
        let cwd = entry.get("cwd").and_then(|cwd| self.expanded(&cwd)).map(PathBuf::from);
        // Paths are not secret, and are useful in an error message.
        self.expanded.take();
        let args = entry.get("args").map(unshown).and_then(|args| {
            let expanded = |at: &At<'_>| self.expanded(at);
            List(With("text", expanded)).parse(&args)
        });
        let mut env = Vec::new();
        for (name, value) in self.pairs(entry, "env") {
            match name.is_empty() || name.contains(['=', '\0']) {
                true => value.0.error(quoted(&name), "the name of a variable"),
                false => env.push((name, SecretString::from(value.1))),
            }
        }
        Some(TransportConfig::Stdio {
            command: program?,
            args: args.unwrap_or_default(),
            env,
            cwd,
        })
    }

    fn http(&self, url: &At<'_>, entry: &Fields<'_>) -> Option<TransportConfig> {
        let text = self.expanded(&unshown(url.clone()));
        let mut headers = Vec::new();
        for (name, (at, value)) in self.pairs(entry, "headers") {
            match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) {
                (Ok(name), Ok(_)) if is_ours(&name) => at.error("a header of the protocol itself", "other headers"),
                (Ok(name), Ok(_)) => headers.push((name, SecretString::from(value))),
                (Err(_), _) => at.error(quoted(&name), "the name of a header"),
                (_, Err(_)) => at.invalid("a value that is valid in a header"),
            }
        }
        let parsed = Url::parse(&text?).ok();
        let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if parsed.is_none() {
            unshown(url.clone()).invalid("an http or https URL");
        }
        let url = parsed?;
        Some(TransportConfig::Http { url, headers })
    }

    /// The entries of `env` or `headers`, expanded.
    fn pairs<'f>(&self, entry: &Fields<'f>, key: &'static str) -> Vec<(String, (At<'f>, String))> {
        let entries = entry
            .get(key)
            .map(unshown)
            .and_then(|at| at.entries())
            .unwrap_or_default();
        let pair = |(name, at): (&str, At<'f>)| {
            let value = self.expanded(&at)?;
            Some((name.to_owned(), (at, value)))
        };
        entries.into_iter().filter_map(pair).collect()
    }

    /// A text, with the values of its variables.
    fn expanded(&self, at: &At<'_>) -> Option<String> {
        let text = TEXT.parse(at)?;
        let values = RefCell::new(Vec::new());
        let noting = |name: &str| {
            let value = (self.env)(name)?;
            if !PASSED_ON.contains(&name) {
                values.borrow_mut().push((name.to_owned(), SecretString::from(&*value)));
            }
            Some(value)
        };
        let expanded = expand(&text, &noting);
        self.expanded.borrow_mut().append(&mut values.into_inner());
        expanded.map_err(|error| at.error(error.found(), error.allowed())).ok()
    }

    fn identity_secret(&self, entry: &At<'_>) -> Option<SecretString> {
        let secret = (self.env)(IDENTITY_SECRET);
        let found = match &secret {
            Some(secret) if secret.len() >= SECRET_BYTES => return Some(SecretString::from(&**secret)),
            Some(_) => "too short",
            None => "not set",
        };
        let path = format!("{}.gavel.identity", entry.path);
        entry.clone().named(path).error(
            format!("\"token\", and {IDENTITY_SECRET} is {found}"),
            format!("\"token\" with a {IDENTITY_SECRET} of at least {SECRET_BYTES} bytes"),
        );
        None
    }
}

/// The value; errors do not show it, because it may be secret.
fn unshown(at: At<'_>) -> At<'_> {
    at.shown_by(|node| match node.content {
        Content::Text(_) => "a text that is not shown".to_owned(),
        _ => node.found(),
    })
}

/// Headers that belong to the protocol and to the HTTP client.
fn is_ours(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "accept"
            | "content-type"
            | "content-length"
            | "host"
            | "transfer-encoding"
            | "connection"
            | "last-event-id"
            | "traceparent"
    ) || name.as_str().starts_with("mcp-")
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

#[cfg(test)]
mod read_tests {
    use super::*;

    #[test]
    fn the_reference_has_each_key_of_an_entry() {
        let (errors, node) = (RefCell::default(), Node::bare(Content::Map(Vec::new())));
        let reader = Reader {
            file: "",
            env: &|_| None,
            warnings: RefCell::default(),
            expanded: RefCell::default(),
        };
        let entry = At::root(&errors, "", &node).open_record(|entry| reader.entry("s", entry));
        let page = include_str!("../../../docs/reference/mcp-json.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let known = entry.map_or_else(Vec::new, |(_, rest)| rest.known);
        assert_eq!(known.len(), 15);
        for key in known {
            let in_code = format!("`{key}`");
            let first = |row: &&str| row.split(" | ").next().is_some_and(|cell| cell.contains(&in_code));
            assert!(rows.iter().any(first), "{key}");
        }
    }
}
