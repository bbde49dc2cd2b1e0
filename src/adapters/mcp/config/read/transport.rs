//! How a server is reached: a command, or a URL.

use std::path::PathBuf;

use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::super::TransportConfig;
use super::{Reader, escape};

impl Reader<'_> {
    pub(super) fn transport(&mut self, entry: &Map<String, Value>, at: &str) -> Option<TransportConfig> {
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
                self.invalid(
                    &format!("{at}/type"),
                    "`sse` is the transport of 2024, which gavel does not support; use `http`",
                );
                return None;
            }
            Some(other) => {
                let message = format!("`{other}` does not fit; allowed: `stdio` with a `command`, `http` with a `url`");
                self.invalid(&format!("{at}/type"), message);
                return None;
            }
        }
        match (command, url) {
            (true, false) => self.stdio(entry, at),
            (false, true) => self.http(entry, at),
            (true, true) => {
                self.invalid(at, "has both a `command` and a `url`; one of them is needed");
                None
            }
            (false, false) => {
                self.invalid(
                    at,
                    "has neither a `command` (stdio) nor a `url` (streamable HTTP); one of them is needed",
                );
                None
            }
        }
    }

    fn stdio(&mut self, entry: &Map<String, Value>, at: &str) -> Option<TransportConfig> {
        let command = self.expanded(entry, "command", at);
        if command.as_deref() == Some("") {
            self.invalid(&format!("{at}/command"), "must not be empty");
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
                self.invalid(&at, "is not the name of a variable");
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
                (Ok(name), Ok(_)) if is_ours(&name) => self.invalid(&at, "is a header of the protocol itself"),
                (Ok(name), Ok(_)) => headers.push((name, SecretString::from(value))),
                (Err(_), _) => self.invalid(&at, "is not the name of a header"),
                (_, Err(_)) => self.invalid(&at, "has a value that is not valid in a header"),
            }
        }
        let text = text?;
        match Url::parse(&text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                Some(TransportConfig::Http { url, headers })
            }
            _ => {
                self.invalid(&format!("{at}/{key}"), "must be an http or https URL");
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
