//! Walks the JSON of `mcp.json` and collects every error with its position.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::expand::expand;
use super::lenient;
use super::{
    ConfigIssue, Connection, IDENTITY_SECRET, Identity, McpConfig, PASSED_ON, ServerConfig, Settings, ToolSettings,
    TransportConfig,
};
use crate::domain::argument_path::ArgumentPath;
use crate::domain::policy::AGENTS;
use crate::domain::times::Times;
use crate::domain::tool::{ApprovalDefault, Idempotency};

/// Default call timeout (DESIGN.md section 12).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default maximum of concurrent calls to one server.
const DEFAULT_CONCURRENT: usize = 256;
/// A shorter HS256 secret is weaker than the hash (RFC 7518 section 3.2).
const SECRET_BYTES: usize = 32;

pub(super) fn read(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<McpConfig, Vec<ConfigIssue>> {
    let text = &lenient::plain(text);
    let root: Value = serde_json::from_str(text).map_err(|error| vec![issue("", format!("not JSON: {error}"))])?;
    // VS Code's name for the same key.
    let key = match root.get("mcpServers") {
        None if root.get("servers").is_some() => "servers",
        _ => "mcpServers",
    };
    let mut reader = Reader {
        env,
        base: format!("/{key}"),
        issues: Vec::new(),
        warnings: Vec::new(),
        expanded: Vec::new(),
    };
    let mut servers = Vec::new();
    match root.get(key) {
        Some(Value::Object(entries)) => {
            for (name, entry) in entries {
                let at = format!("/{key}/{}", escape(name));
                let Some(server) = reader.server(name, entry, &at) else {
                    continue;
                };
                match servers.iter().any(|known: &ServerConfig| known.name == server.name) {
                    true => reader.wrong(&at, format!("there are two servers `{}`", server.name)),
                    false => servers.push(server),
                }
            }
        }
        Some(_) => reader.wrong(&reader.base.clone(), "must be an object of servers by name"),
        None => reader.wrong(
            "",
            "`mcpServers` is missing (`servers`, as VS Code calls it, is read too)",
        ),
    }
    if key == "mcpServers" && root.get("servers").is_some() {
        reader
            .warnings
            .push(issue("/servers", "ignored, because `mcpServers` is present"));
    }
    servers.sort_by(|a, b| a.name.cmp(&b.name));
    let identity_secret = reader.identity_secret(&servers);
    let found = |issue: &mut ConfigIssue| issue.line = Some(lenient::line(text, &issue.pointer));
    reader.issues.iter_mut().for_each(found);
    reader.warnings.iter_mut().for_each(found);
    if !reader.issues.is_empty() {
        return Err(reader.issues);
    }
    Ok(McpConfig {
        servers,
        warnings: reader.warnings,
        identity_secret,
        base_env: PASSED_ON
            .iter()
            .filter_map(|name| env(name).map(|value| (*name, value)))
            .collect(),
    })
}

fn issue(pointer: &str, message: impl Into<String>) -> ConfigIssue {
    ConfigIssue {
        line: None,
        pointer: pointer.to_owned(),
        message: message.into(),
    }
}

/// One step of a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Old and new names of the keys of `tools.NAME`.
const RENAMED_OF_TOOLS: [(&str, &str); 2] = [("oneLine", "singleLine"), ("ready", "preflight")];
/// Keys of `tools.NAME` for which `freeArguments` leaves no use.
const OBSOLETE_OF_TOOLS: [&str; 2] = ["alwaysAsk", "ungrantable"];

struct Reader<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Pointer to the servers.
    base: String,
    issues: Vec<ConfigIssue>,
    warnings: Vec<ConfigIssue>,
    /// Values of the variables used in the current entry.
    expanded: Vec<SecretString>,
}

impl Reader<'_> {
    fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        self.issues.push(issue(pointer, message));
    }

    fn server(&mut self, name: &str, entry: &Value, at: &str) -> Option<ServerConfig> {
        let Value::Object(entry) = entry else {
            self.wrong(at, "must be an object");
            return None;
        };
        // Names of tools, URLs and commands have no white space.
        let one_word = name.split_whitespace().collect::<Vec<_>>().join("-");
        if one_word != *name && !one_word.is_empty() {
            let message = format!("a server's name must not contain white space; the name `{one_word}` is used");
            self.warnings.push(issue(at, message));
        }
        let name = one_word.as_str();
        if name == AGENTS {
            let message =
                format!("`{AGENTS}` is reserved: a policy names agents `{AGENTS}__NAME`; choose another name");
            self.wrong(at, message);
            return None;
        }
        if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
            self.wrong(
                at,
                "a server's name must have 1 to 64 bytes, without control characters",
            );
        }
        // Some programs write unset values as null.
        let set = entry.iter().filter(|(_, value)| !value.is_null());
        let entry = &set.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.unknown_keys(entry, at);
        let gavel = self.settings(entry, at);
        let disabled = self.bool(entry, "disabled", at).unwrap_or(false);
        let enabled = self.bool(entry, "enabled", at).unwrap_or(true);
        let timeout = self.millis(entry, "timeout", at).unwrap_or(DEFAULT_TIMEOUT);
        if timeout < Duration::from_secs(1) {
            let ms = timeout.as_millis();
            let message = format!("{ms} milliseconds; for {ms} seconds write {}", ms * 1000);
            self.warnings.push(issue(&format!("{at}/timeout"), message));
        }
        let include = self.strings(entry, "includeTools", at);
        let exclude = self.strings(entry, "excludeTools", at).unwrap_or_default();
        let off = match disabled || !enabled {
            true => Some("disabled in mcp.json".to_owned()),
            false => self.lacks(&gavel.required_env, entry),
        };
        // An entry that is off may use unset variables.
        self.expanded.clear();
        let transport = if off.is_some() { None } else { self.transport(entry, at) };
        Some(ServerConfig {
            name: Arc::from(name),
            transport,
            off,
            timeout,
            include,
            exclude,
            expanded: std::mem::take(&mut self.expanded),
            gavel,
        })
    }

    fn unknown_keys(&mut self, entry: &Map<String, Value>, at: &str) {
        const KNOWN: [&str; 15] = [
            "command",
            "args",
            "env",
            "cwd",
            "url",
            "httpUrl",
            "headers",
            "timeout",
            "includeTools",
            "excludeTools",
            "type",
            "disabled",
            "enabled",
            "description",
            "gavel",
        ];
        for key in entry.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            self.warnings
                .push(issue(&format!("{at}/{}", escape(key)), "unknown key, ignored"));
        }
    }

    fn transport(&mut self, entry: &Map<String, Value>, at: &str) -> Option<TransportConfig> {
        let kind = self.string(entry, "type", at);
        let (command, url) = (
            entry.contains_key("command"),
            entry.contains_key("url") || entry.contains_key("httpUrl"),
        );
        match kind.as_deref() {
            None => {}
            Some("stdio") if command => {}
            Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") if url => {}
            Some("sse") => {
                self.wrong(
                    &format!("{at}/type"),
                    "`sse` is the transport of 2024, which gavel does not support; use `http`",
                );
                return None;
            }
            Some(other) => {
                let message = format!("`{other}` does not fit; allowed: `stdio` with a `command`, `http` with a `url`");
                self.wrong(&format!("{at}/type"), message);
                return None;
            }
        }
        match (command, url) {
            (true, false) => self.stdio(entry, at),
            (false, true) => self.http(entry, at),
            (true, true) => {
                self.wrong(at, "has both a `command` and a `url`; one of them is needed");
                None
            }
            (false, false) => {
                self.wrong(at, "has neither a `command` (stdio) nor a `url` (streamable HTTP)");
                None
            }
        }
    }

    fn stdio(&mut self, entry: &Map<String, Value>, at: &str) -> Option<TransportConfig> {
        let command = self.expanded(entry, "command", at);
        if command.as_deref() == Some("") {
            self.wrong(&format!("{at}/command"), "must not be empty");
        }
        let cwd = self.expanded(entry, "cwd", at).map(PathBuf::from);
        // Paths are not secret, and are useful in an error message.
        self.expanded.clear();
        let mut args = Vec::new();
        for (n, arg) in self.strings(entry, "args", at).unwrap_or_default().iter().enumerate() {
            args.extend(self.expand(arg, &format!("{at}/args/{n}")));
        }
        let mut env = Vec::new();
        for (name, value) in self.pairs(entry, "env", at) {
            let at = format!("{at}/env/{}", escape(&name));
            if name.is_empty() || name.contains(['=', '\0']) {
                self.wrong(&at, "is not the name of a variable");
            }
            if let Some(value) = self.expand(&value, &at) {
                env.push((name, SecretString::from(value)));
            }
        }
        Some(TransportConfig::Stdio {
            command: command?,
            args,
            env,
            cwd,
        })
    }

    fn http(&mut self, entry: &Map<String, Value>, at: &str) -> Option<TransportConfig> {
        // `httpUrl` is Gemini CLI's name for streamable HTTP. It takes precedence if both are present.
        let key = if entry.contains_key("httpUrl") {
            "httpUrl"
        } else {
            "url"
        };
        let text = self.expanded(entry, key, at);
        let mut headers = Vec::new();
        for (name, value) in self.pairs(entry, "headers", at) {
            let at = format!("{at}/headers/{}", escape(&name));
            let Some(value) = self.expand(&value, &at) else {
                continue;
            };
            match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value)) {
                (Ok(name), Ok(_)) if is_ours(&name) => self.wrong(&at, "is a header of the protocol itself"),
                (Ok(name), Ok(_)) => headers.push((name, SecretString::from(value))),
                (Err(_), _) => self.wrong(&at, "is not the name of a header"),
                (_, Err(_)) => self.wrong(&at, "has a value that is not valid in a header"),
            }
        }
        let text = text?;
        match Url::parse(&text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                Some(TransportConfig::Http { url, headers })
            }
            _ => {
                self.wrong(&format!("{at}/{key}"), "must be an http or https URL");
                None
            }
        }
    }

    fn settings(&mut self, entry: &Map<String, Value>, at: &str) -> Settings {
        let mut settings = Settings {
            identity: Identity::None,
            connection: Connection::Shared,
            tenant_users: None,
            trust_hints: false,
            expose_errors: false,
            max_concurrent: DEFAULT_CONCURRENT,
            pin: false,
            required_env: Vec::new(),
            tools: BTreeMap::new(),
        };
        let at = &format!("{at}/gavel");
        let gavel = match entry.get("gavel") {
            None => return settings,
            Some(Value::Object(gavel)) => &self.renamed(gavel, &[("needs", "requiredEnv")], at),
            Some(_) => {
                self.wrong(at, "must be an object");
                return settings;
            }
        };
        self.only(
            gavel,
            &[
                "identity",
                "connection",
                "tenantUsers",
                "trustHints",
                "exposeErrors",
                "maxConcurrent",
                "pin",
                "requiredEnv",
                "tools",
            ],
            at,
        );
        settings.required_env = self.required_env(gavel, at);
        settings.identity = self.identity(gavel, at);
        settings.connection = match self.string(gavel, "connection", at).as_deref() {
            None | Some("shared") => Connection::Shared,
            Some("per_user") => Connection::PerUser,
            Some(other) => {
                let message = format!("`{other}`; allowed: `shared`, `per_user`");
                self.wrong(&format!("{at}/connection"), message);
                Connection::Shared
            }
        };
        settings.tenant_users = self.bool(gavel, "tenantUsers", at);
        settings.trust_hints = self.bool(gavel, "trustHints", at).unwrap_or(false);
        settings.expose_errors = self.bool(gavel, "exposeErrors", at).unwrap_or(false);
        settings.pin = self.bool(gavel, "pin", at).unwrap_or(false);
        if let Some(value) = gavel.get("maxConcurrent") {
            match value.as_u64() {
                Some(n @ 1..=65_536) => settings.max_concurrent = usize::try_from(n).unwrap_or(DEFAULT_CONCURRENT),
                _ => self.wrong(&format!("{at}/maxConcurrent"), format!("{value}; allowed: 1 to 65536")),
            }
        }
        match gavel.get("tools") {
            None => {}
            Some(Value::Object(tools)) => {
                for (name, value) in tools {
                    let at = format!("{at}/tools/{}", escape(name));
                    if let Some(tool) = self.tool(value, &at) {
                        settings.tools.insert(name.clone(), tool);
                    }
                }
            }
            Some(_) => self.wrong(&format!("{at}/tools"), "must be an object of settings by tool name"),
        }
        settings
    }

    /// Moves the values of keys that had another name to their name now, with a warning for each.
    fn renamed(&mut self, object: &Map<String, Value>, names: &[(&str, &str)], at: &str) -> Map<String, Value> {
        let mut object = object.clone();
        for (old, new) in names {
            let Some(value) = object.remove(*old) else { continue };
            let pointer = format!("{at}/{old}");
            match object.contains_key(*new) {
                true => self.wrong(
                    &pointer,
                    format!("is the old name of `{new}`, which is set as well; remove `{old}`"),
                ),
                false => {
                    let message = format!("`{old}` is now `{new}`; rename it, since the next release rejects `{old}`");
                    self.warnings.push(issue(&pointer, message));
                    object.insert((*new).to_owned(), value);
                }
            }
        }
        object
    }

    fn required_env(&mut self, gavel: &Map<String, Value>, at: &str) -> Vec<Vec<String>> {
        let Some(value) = gavel.get("requiredEnv") else {
            return Vec::new();
        };
        let names = |list: &Value| -> Option<Vec<String>> {
            let names = list.as_array().filter(|names| !names.is_empty())?;
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let lists = value.as_array().and_then(|lists| lists.iter().map(names).collect());
        lists.unwrap_or_else(|| {
            let message = "must list alternatives, each a list of variables, such as [[\"ID\", \"SECRET\"], [\"KEY\"]]";
            self.wrong(&format!("{at}/requiredEnv"), message);
            Vec::new()
        })
    }

    /// The required variables that are missing both in gavel's environment and in the entry's `env`. If one alternative
    /// is partly set, only its missing variables.
    fn lacks(&self, required: &[Vec<String>], entry: &Map<String, Value>) -> Option<String> {
        let in_entry = |name: &str| {
            let text = entry.get("env")?.get(name)?.as_str()?;
            // Unset variables in it are reported where the value is used.
            expand(text, self.env).ok()
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

    fn identity(&mut self, gavel: &Map<String, Value>, at: &str) -> Identity {
        let argument = |value: &Value| {
            let object = value.as_object().filter(|object| object.len() == 1)?;
            object
                .get("argument")?
                .as_str()
                .filter(|name| !name.is_empty())
                .map(Arc::from)
        };
        match gavel.get("identity") {
            None => Identity::None,
            Some(Value::String(word)) if word == "none" => Identity::None,
            Some(Value::String(word)) if word == "token" => Identity::Token,
            Some(value) => argument(value).map_or_else(
                || {
                    let message = format!("{value}; allowed: \"none\", \"token\", {{\"argument\": \"NAME\"}}");
                    self.wrong(&format!("{at}/identity"), message);
                    Identity::None
                },
                Identity::Argument,
            ),
        }
    }

    fn tool(&mut self, value: &Value, at: &str) -> Option<ToolSettings> {
        let Value::Object(tool) = value else {
            self.wrong(at, "must be an object");
            return None;
        };
        let tool = &self.renamed(tool, &RENAMED_OF_TOOLS, at);
        self.only(
            tool,
            &[
                "sideEffect",
                "approval",
                "timeoutMs",
                "idempotency",
                "recipients",
                "singleLine",
                "times",
                "freeArguments",
                "preflight",
                OBSOLETE_OF_TOOLS[0],
                OBSOLETE_OF_TOOLS[1],
            ],
            at,
        );
        for key in OBSOLETE_OF_TOOLS {
            if tool.contains_key(key) {
                let message = "ignored: a grant covers only the arguments that `freeArguments` lists";
                self.warnings.push(issue(&format!("{at}/{key}"), message));
            }
        }
        if tool.contains_key("recipients") && !tool.contains_key("freeArguments") {
            let message =
                "`freeArguments` is missing: a grant covers only calls that set nothing besides the recipients";
            self.warnings.push(issue(at, message));
        }
        let approval = match self.string(tool, "approval", at).as_deref() {
            None => None,
            Some("required") => Some(ApprovalDefault::Required),
            Some("not_required") => Some(ApprovalDefault::NotRequired),
            Some(other) => {
                let message = format!("`{other}`; allowed: `required`, `not_required`");
                self.wrong(&format!("{at}/approval"), message);
                None
            }
        };
        let idempotency = match self.string(tool, "idempotency", at).as_deref() {
            None => None,
            Some("none") => Some(Idempotency::None),
            Some("natural") => Some(Idempotency::Natural),
            Some("key") => Some(Idempotency::Key),
            Some(other) => {
                let message = format!("`{other}`; allowed: `none`, `natural`, `key`");
                self.wrong(&format!("{at}/idempotency"), message);
                None
            }
        };
        Some(ToolSettings {
            side_effect: self.bool(tool, "sideEffect", at),
            approval,
            timeout: self.millis(tool, "timeoutMs", at),
            idempotency,
            recipients: self.paths(tool, "recipients", at),
            free_arguments: self.paths(tool, "freeArguments", at),
            single_line: self.paths(tool, "singleLine", at),
            times: self.times(tool, at),
            preflight: self.string(tool, "preflight", at).map(Arc::from),
        })
    }

    fn paths(&mut self, tool: &Map<String, Value>, key: &str, at: &str) -> Vec<ArgumentPath> {
        let mut paths = Vec::new();
        for (n, text) in self.strings(tool, key, at).unwrap_or_default().iter().enumerate() {
            match ArgumentPath::parse(text) {
                Some(path) => paths.push(path),
                None => {
                    let message = format!("`{text}`; allowed: {}", ArgumentPath::ALLOWED);
                    self.wrong(&format!("{at}/{key}/{n}"), message);
                }
            }
        }
        paths
    }

    fn times(&mut self, tool: &Map<String, Value>, at: &str) -> Option<Times> {
        let at = &format!("{at}/times");
        let times = match tool.get("times")? {
            Value::Object(times) => times,
            _ => {
                self.wrong(at, "must be an object with a `start`");
                return None;
            }
        };
        self.only(times, &["start", "end", "zone", "allowPast"], at);
        let mut path = |key: &str| {
            let text = self.string(times, key, at)?;
            let path = ArgumentPath::parse(&text).filter(|_| !text.contains("[]"));
            if path.is_none() {
                let message = format!("`{text}`; allowed: a path to one argument, such as start or event.start");
                self.wrong(&format!("{at}/{key}"), message);
            }
            path
        };
        let (start, end, zone, allow_past) = (path("start"), path("end"), path("zone"), path("allowPast"));
        if !times.contains_key("start") {
            self.wrong(at, "needs a `start`");
        }
        Some(Times {
            start: start?,
            end,
            zone,
            allow_past,
        })
    }

    fn identity_secret(&mut self, servers: &[ServerConfig]) -> Option<SecretString> {
        let asking = servers
            .iter()
            .find(|server| server.off.is_none() && server.gavel.identity == Identity::Token)?;
        let at = format!("{}/{}/gavel/identity", self.base, escape(&asking.name));
        match (self.env)(IDENTITY_SECRET) {
            Some(secret) if secret.len() >= SECRET_BYTES => Some(SecretString::from(secret)),
            Some(_) => {
                self.wrong(
                    &at,
                    format!("\"token\" needs a {IDENTITY_SECRET} of at least {SECRET_BYTES} bytes"),
                );
                None
            }
            None => {
                self.wrong(&at, format!("\"token\" needs {IDENTITY_SECRET}, which is not set"));
                None
            }
        }
    }

    fn only(&mut self, object: &Map<String, Value>, known: &[&str], at: &str) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = format!("unknown key; allowed: {}", known.join(", "));
            self.wrong(&format!("{at}/{}", escape(key)), message);
        }
    }

    fn string(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<String> {
        match object.get(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong(&format!("{at}/{key}"), "must be a string");
                None
            }
        }
    }

    fn bool(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<bool> {
        let value = object.get(key)?;
        if value.as_bool().is_none() {
            self.wrong(&format!("{at}/{key}"), "must be true or false");
        }
        value.as_bool()
    }

    fn millis(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<Duration> {
        let value = object.get(key)?;
        match value.as_u64() {
            Some(ms @ 1..=86_400_000) => Some(Duration::from_millis(ms)),
            _ => {
                self.wrong(
                    &format!("{at}/{key}"),
                    format!("{value}; allowed: 1 to 86400000 milliseconds"),
                );
                None
            }
        }
    }

    fn strings(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<Vec<String>> {
        let value = object.get(key)?;
        let strings: Option<Vec<String>> = value
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if strings.is_none() {
            self.wrong(&format!("{at}/{key}"), "must be an array of strings");
        }
        strings
    }

    fn pairs(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Vec<(String, String)> {
        let Some(value) = object.get(key) else {
            return Vec::new();
        };
        let Value::Object(pairs) = value else {
            self.wrong(&format!("{at}/{key}"), "must be an object of strings");
            return Vec::new();
        };
        let mut out = Vec::new();
        for (name, value) in pairs {
            match value {
                Value::String(text) => out.push((name.clone(), text.clone())),
                _ => self.wrong(&format!("{at}/{key}/{}", escape(name)), "must be a string"),
            }
        }
        out
    }

    fn expanded(&mut self, object: &Map<String, Value>, key: &str, at: &str) -> Option<String> {
        let text = self.string(object, key, at)?;
        self.expand(&text, &format!("{at}/{key}"))
    }

    fn expand(&mut self, text: &str, at: &str) -> Option<String> {
        let (env, values) = (self.env, RefCell::default());
        let noting = |name: &str| {
            let value = env(name)?;
            if !PASSED_ON.contains(&name) {
                Vec::push(&mut values.borrow_mut(), SecretString::from(&*value));
            }
            Some(value)
        };
        let expanded = expand(text, &noting);
        self.expanded.append(&mut values.into_inner());
        match expanded {
            Ok(text) => Some(text),
            Err(error) => {
                self.wrong(at, error.to_string());
                None
            }
        }
    }
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
