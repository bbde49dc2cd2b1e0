//! Walks the JSON of `mcp.json` and collects every error with its position.

mod settings;
mod tool;
mod transport;
mod values;

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Map, Value};

use super::lenient;
use super::{ConfigIssue, McpConfig, PASSED_ON, ServerConfig, ToolSettings};
use crate::domain::definition::nearest::nearest;
use crate::domain::policy::AGENTS;

/// Default call timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The keys of an entry.
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

pub(super) fn read(
    file: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<McpConfig, Vec<ConfigIssue>> {
    let text = &lenient::plain(text);
    let file: &Arc<str> = &Arc::from(file);
    let root: Value = serde_json::from_str(text).map_err(|error| {
        let not_json = ConfigIssue {
            line: Some(error.line()),
            ..issue(file, "", format!("not JSON: {error}"))
        };
        vec![not_json]
    })?;
    // VS Code's name for the same key.
    let key = match root.get("mcpServers") {
        None if root.get("servers").is_some() => "servers",
        _ => "mcpServers",
    };
    let mut reader = Reader {
        file,
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
                    true => reader.invalid(&at, format!("there are two servers `{}`", server.name)),
                    false => servers.push(server),
                }
            }
        }
        Some(_) => reader.invalid(&reader.base.clone(), "must be an object of servers by name"),
        None => reader.invalid(
            "",
            "`mcpServers` is missing (`servers`, as VS Code calls it, is read too)",
        ),
    }
    if key == "mcpServers" && root.get("servers").is_some() {
        reader.warning("/servers", "ignored, because `mcpServers` is present");
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

/// What a server says of its own tool.
pub(super) fn said(value: &Value) -> Result<ToolSettings, String> {
    let mut reader = Reader {
        file: &Arc::from(""),
        env: &|_| None,
        base: String::new(),
        issues: Vec::new(),
        warnings: Vec::new(),
        expanded: Vec::new(),
    };
    let settings = reader.tool(value, "");
    let errors: Vec<_> = reader
        .issues
        .iter()
        .map(|issue| format!("{}: {}", issue.pointer, issue.message))
        .collect();
    settings.filter(|_| errors.is_empty()).ok_or_else(|| errors.join("; "))
}

fn issue(file: &Arc<str>, pointer: &str, message: impl Into<String>) -> ConfigIssue {
    ConfigIssue {
        file: Arc::clone(file),
        line: None,
        pointer: pointer.to_owned(),
        message: message.into(),
    }
}

/// One step of a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

struct Reader<'a> {
    file: &'a Arc<str>,
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Pointer to the servers.
    base: String,
    issues: Vec<ConfigIssue>,
    warnings: Vec<ConfigIssue>,
    /// The variables used in the current entry.
    expanded: Vec<(String, SecretString)>,
}

impl Reader<'_> {
    fn invalid(&mut self, pointer: &str, message: impl Into<String>) {
        self.issues.push(issue(self.file, pointer, message));
    }

    fn warning(&mut self, pointer: &str, message: impl Into<String>) {
        self.warnings.push(issue(self.file, pointer, message));
    }

    fn server(&mut self, name: &str, entry: &Value, at: &str) -> Option<ServerConfig> {
        let Value::Object(entry) = entry else {
            self.invalid(at, "must be an object");
            return None;
        };
        // Names of tools, URLs and commands have no white space.
        let one_word = name.split_whitespace().collect::<Vec<_>>().join("-");
        if one_word != *name && !one_word.is_empty() {
            let message = format!("a server's name must not contain white space; the name `{one_word}` is used");
            self.warning(at, message);
        }
        let name = one_word.as_str();
        if name == AGENTS {
            let message =
                format!("`{AGENTS}` is reserved: a policy names agents `{AGENTS}__NAME`; choose another name");
            self.invalid(at, message);
            return None;
        }
        if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
            self.invalid(
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
            self.warning(&format!("{at}/timeout"), message);
        }
        let include = self.strings(entry, "includeTools", at);
        let exclude = self.strings(entry, "excludeTools", at).unwrap_or_default();
        let off = match disabled || !enabled {
            true => Some(format!("disabled in {}", self.file)),
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
        for key in entry.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
            let at = format!("{at}/{}", escape(key));
            // Other clients have more keys. But a misspelled one would change what this server does.
            let meant = match key.as_str() {
                "cmd" => Some("command"),
                _ => nearest(key, KNOWN),
            };
            match meant {
                Some(known) => self.invalid(&at, format!("unknown key; did you mean `{known}`?")),
                None => self.warning(&at, "unknown key, ignored"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_each_key_of_an_entry() {
        let page = include_str!("../../../../docs/reference/mcp-json.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        for key in KNOWN {
            let in_code = format!("`{key}`");
            let first = |row: &&str| row.split(" | ").next().is_some_and(|cell| cell.contains(&in_code));
            assert!(rows.iter().any(first), "{key}");
        }
    }
}
