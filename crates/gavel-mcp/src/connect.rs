//! Opens a connection from a server's entry and lists its tools.
//!
//! The protocol era of a server is found with the cheapest first guess:
//!
//! - HTTP: `server/discover` first, because every HTTP server answers something at once. A server of the session era
//!   rejects it, and `initialize` follows. A silent server gets 1.5 s.
//! - stdio: `initialize` first, because older servers never answer an earlier message. A server that rejects it is
//!   restarted and asked with `server/discover`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use reqwest::header::HeaderName;
use rmcp::model::ProtocolVersion;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;

use super::attempt::{Answered, Attempt, Fault, MAX_WORDS};
use super::config::{ServerConfig, TransportConfig};
use super::connection::{Connection, Hello, SideTasks, Wire, client_info};
use super::definition::{MAX_LEVELS, MAX_LISTED, TOO_DEEP};
use super::http::Http;
use super::inbox::{Flood, Inbox};
use super::log;
use super::message;
use super::process::Process;
use super::source::{METHOD_NOT_FOUND, NoRoom, Source};
use crate::domain::budget::Share;
use crate::domain::{nesting, surrogates};

/// How long an HTTP server may take to answer `server/discover`.
const DISCOVER: Duration = Duration::from_millis(1500);
/// Maximum bytes of the name and version of a server's software, and of its protocol version.
const MAX_SOFTWARE: usize = 256;
const MODERN: ProtocolVersion = ProtocolVersion::V_2026_07_28;
const LATEST_WITH_SESSIONS: ProtocolVersion = ProtocolVersion::LATEST_WITH_INITIALIZE;

/// An open connection, and the tools as its server lists them.
pub(super) struct Open {
    pub(super) connection: Arc<Connection>,
    pub(super) list: List,
}

/// Connects and lists the tools, without a time limit of its own.
///
/// # Errors
/// Why it failed, for an operator.
pub(super) async fn open(
    server: &ServerConfig,
    base_env: &[(&'static str, String)],
    source: &Arc<Source>,
    background: &SideTasks,
) -> Result<Open, Fault> {
    let inbox = Inbox::new(source.clone(), background.clone());
    let connecting = match &server.transport {
        None => return Err(Fault::lasting(server.off.clone().unwrap_or_else(|| "off".to_owned()))),
        Some(config @ TransportConfig::Stdio { .. }) => open_stdio(config, base_env, &inbox).boxed(),
        Some(TransportConfig::Http { url, headers }) => open_http(url, headers, &inbox).boxed(),
    };
    let opening = async {
        let connection = connecting.await?;
        let list = list(&connection).await.inspect_err(|_| {
            if let Wire::Http(http) = &connection.wire {
                http.close();
            }
        })?;
        Ok(Open {
            connection: Arc::new(connection),
            list,
        })
    };
    tokio::select! {
        biased;
        () = inbox.flooded() => Err(Fault::passing(Flood.to_string())),
        open = opening => open,
    }
}

async fn open_stdio(
    config: &TransportConfig,
    base_env: &[(&'static str, String)],
    inbox: &Arc<Inbox>,
) -> Result<Connection, Fault> {
    let start = |era| async move {
        let process = Process::start(inbox, config, base_env);
        let process = process.map_err(|words| {
            let words = inbox.source.words(&words, MAX_WORDS);
            NoHandshake::from(Fault::passing(words))
        })?;
        let last_lines = process.last_lines.clone();
        let shaken = shake(Wire::Process(process), inbox, era).await;
        match shaken {
            Err(mut failed) => {
                if let Some(lines) = last_lines.get().await {
                    let words = format!("{}; on stderr it wrote: {lines}", failed.fault.words);
                    failed.fault.words = inbox.source.words(&words, 2 * MAX_WORDS);
                }
                Err(failed)
            }
            Ok(connection) => Ok(connection),
        }
    };
    match start(Era::Sessions).await {
        Ok(connection) => Ok(connection),
        Err(first) if first.is_of_the_request => {
            let second = start(Era::Stateless).await;
            second.map_err(|failed| failed.after(&first))
        }
        Err(first) => Err(first.fault),
    }
}

async fn open_http(url: &Url, headers: &[(HeaderName, SecretString)], inbox: &Arc<Inbox>) -> Result<Connection, Fault> {
    let http = Http::new(url, headers, inbox.clone()).map_err(Fault::lasting)?;
    let start = |era| shake(Wire::Http(http.again()), inbox, era);
    let first = match tokio::time::timeout(DISCOVER, start(Era::Stateless)).await {
        Ok(Ok(connection)) => return Ok(connection),
        // An immediate second request would fail in the same way.
        Ok(Err(failed)) if !failed.was_sent || inbox.background.rests().is_some() => return Err(failed.fault),
        Ok(Err(failed)) => Some(failed).filter(|failed| !failed.is_of_the_request),
        Err(_) => None,
    };
    // An unexpected answer to an unknown method says nothing about `initialize`, but may explain why that fails as well.
    let second = start(Era::Sessions).await;
    second.map_err(|failed| match &first {
        Some(first) => failed.after(first),
        None => failed.fault,
    })
}

/// How a handshake begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Sessions,
    Stateless,
}

/// Why there is no connection.
struct NoHandshake {
    fault: Fault,
    /// The server rejects this way to begin, and may accept the other one.
    is_of_the_request: bool,
    was_sent: bool,
}

impl From<Fault> for NoHandshake {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            is_of_the_request: false,
            was_sent: true,
        }
    }
}

impl NoHandshake {
    fn new(answered: Answered, source: &Source) -> Self {
        let is_error = matches!(answered.attempt, Attempt::Error { .. });
        let failed = Self {
            is_of_the_request: match &answered.refusal {
                Some(refusal) => refusal.is_of_the_request(),
                None => is_error,
            },
            was_sent: !matches!(answered.attempt, Attempt::NotSent(..)),
            fault: Fault::new(answered, source),
        };
        match is_error {
            true => failed.with_words(|words| format!("it refused the handshake: {words}")),
            false => failed,
        }
    }

    fn with_words(mut self, change: impl FnOnce(&str) -> String) -> Self {
        self.fault.words = change(&self.fault.words);
        self
    }

    /// The fault of a second attempt.
    fn after(self, first: &Self) -> Fault {
        let first = &first.fault.words;
        match *first == self.fault.words {
            true => self.fault,
            false => self.with_words(|words| format!("{first}, and then: {words}")).fault,
        }
    }
}

async fn shake(wire: Wire, inbox: &Arc<Inbox>, era: Era) -> Result<Connection, NoHandshake> {
    let mut connection = Connection::new(wire, inbox.clone(), era == Era::Stateless);
    let answered = match era {
        Era::Stateless => connection.request("server/discover", &[]).await,
        Era::Sessions => {
            let client = json!(client_info()).to_string();
            let version = json!(LATEST_WITH_SESSIONS).to_string();
            let members = [
                ("protocolVersion", version.as_str()),
                ("capabilities", "{}"),
                ("clientInfo", &client),
            ];
            connection.request("initialize", &members).await
        }
    };
    let source = &inbox.source;
    let Attempt::Result(result, _held) = answered.attempt else {
        return Err(NoHandshake::new(answered, source));
    };
    let hello = message::tree_bytes(&result).and_then(|_| hello(&result, era, source));
    let hello = hello.map_err(|words| Fault::lasting(source.words(&words, MAX_WORDS)))?;
    if let Wire::Http(http) = &connection.wire {
        http.negotiated(&hello.protocol);
    }
    if era == Era::Sessions {
        connection.initialized().await.map_err(Fault::passing)?;
        if hello.protocol == MODERN.as_str() {
            connection.become_modern();
        }
    }
    connection.hello = hello;
    Ok(connection)
}

/// Reads a handshake. A server may leave out what gavel does not use, and write empty objects as PHP does.
///
/// # Errors
/// It says nothing about the protocol, or gavel does not support what it says.
fn hello(result: &[u8], era: Era, source: &Source) -> Result<Hello, String> {
    let result: Value = serde_json::from_slice(&surrogates::repaired(result)).unwrap_or_default();
    let version = match era {
        Era::Stateless => match result.get("supportedVersions").and_then(Value::as_array) {
            Some(versions) if versions.iter().any(|version| version == MODERN.as_str()) => Some(MODERN.as_str()),
            Some(versions) => {
                let versions: Vec<_> = versions.iter().filter_map(Value::as_str).collect();
                return Err(format!(
                    "it supports the protocol versions {}, and gavel supports {}",
                    versions.join(", "),
                    MODERN.as_str()
                ));
            }
            None => None,
        },
        Era::Sessions => match result.get("protocolVersion") {
            Some(Value::String(version)) => Some(version.as_str()),
            // A server that names no version uses the requested one.
            other if other.is_none_or(message::is_empty) => ["protocolVersion", "serverInfo", "capabilities"]
                .iter()
                .any(|member| result.get(member).is_some())
                .then(|| LATEST_WITH_SESSIONS.as_str()),
            _ => None,
        },
    };
    let version = version.ok_or("its answer to the handshake has no `protocolVersion` and no `supportedVersions`")?;
    let software = result.get("serverInfo");
    let software = software.or_else(|| result.pointer("/_meta/io.modelcontextprotocol~1serverInfo"));
    let text = |name: &str| match software.and_then(|software| software.get(name)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let name = software
        .and_then(Value::as_str)
        .map_or_else(|| text("name"), str::to_owned);
    let software = format!("{name} {}", text("version"));
    Ok(Hello {
        protocol: source.words(version, MAX_SOFTWARE),
        software: Some(source.words(software.trim(), MAX_SOFTWARE)).filter(|software| !software.is_empty()),
        reports_changes: result.pointer("/capabilities/tools/listChanged") == Some(&json!(true)),
    })
}

/// Maximum pages of a list.
const MAX_PAGES: usize = 64;
/// Maximum bytes of a list, all pages together.
const MAX_LIST: usize = 16 * 1024 * 1024;
/// Maximum bytes of a cursor that are shown.
const SHOWN: usize = 64;

/// A list of tools, and its share of the answer budget.
#[derive(Default)]
pub(super) struct List {
    pub(super) tools: Vec<Value>,
    held: Vec<Share>,
}

/// One page of it.
struct Page {
    tools: Vec<Value>,
    next: Option<String>,
    bytes: usize,
}

/// Lists all tools, each as the JSON that was received, so that one invalid tool does not hide the others. A list with
/// more than [`MAX_LISTED`] tools ends with the first one beyond the limit.
///
/// # Errors
/// Why there is no list.
pub(super) async fn list(connection: &Connection) -> Result<List, Fault> {
    let mut list = List::default();
    let mut known = HashSet::new();
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut bytes = 0;
    for _ in 0..MAX_PAGES {
        let is_first = cursor.is_none();
        let Some(page) = page(connection, cursor.take(), &mut list.held).await? else {
            return Ok(list);
        };
        bytes += page.bytes;
        if bytes > MAX_LIST {
            let words = format!("its list of tools has more than {MAX_LIST} bytes");
            return Err(Fault::lasting(words));
        }
        let names = page.tools.iter().map(|tool| tool["name"].to_string());
        let new = names.filter(|name| known.insert(name.clone())).count();
        if new == 0 && !page.tools.is_empty() && !is_first {
            // The server sends the same tools for every cursor, so the list is complete.
            log::line!(
                connection.inbox.source.log,
                warn,
                "a `nextCursor` of its list of tools returned no new tools; the list is treated as complete"
            );
            return Ok(list);
        }
        list.tools.extend(page.tools);
        if list.tools.len() > MAX_LISTED {
            list.tools.truncate(MAX_LISTED + 1);
            return Ok(list);
        }
        let Some(next) = page.next else { return Ok(list) };
        if !cursors.insert(next.clone()) {
            let next = connection.inbox.source.words(&next, SHOWN);
            let words = format!("its list of tools has the same `nextCursor` twice, `{next}`, and has no end");
            return Err(Fault::lasting(words));
        }
        cursor = Some(next);
    }
    let words = format!("its list of tools has more than {MAX_PAGES} pages, each with another `nextCursor`");
    Err(Fault::lasting(words))
}

/// One page; `None` if the server has no lists. Its share of the answer budget is added to `held`.
async fn page(connection: &Connection, cursor: Option<String>, held: &mut Vec<Share>) -> Result<Option<Page>, Fault> {
    let cursor = cursor.map(|cursor| Value::from(cursor).to_string());
    let members = cursor.as_deref().map(|cursor| ("cursor", cursor));
    let answered = connection.request("tools/list", members.as_slice()).await;
    let (text, share) = match answered {
        Answered {
            attempt: Attempt::Result(text, share),
            ..
        } => (text, share),
        Answered {
            attempt: Attempt::Error {
                code: METHOD_NOT_FOUND, ..
            },
            ..
        } => return Ok(None),
        other => {
            let fault = Fault::new(other, &connection.inbox.source);
            let words = format!("its tools could not be listed: {}", fault.words);
            return Err(Fault { words, ..fault });
        }
    };
    held.extend(share);
    let tree = message::tree_bytes(&text);
    let tree = tree.map_err(|why| Fault::lasting(format!("its list of tools cannot be read: {why}")))?;
    let mut tree_held = connection.inbox.source.held();
    let room = tree_held.add(tree);
    room.map_err(|exceeded| Fault::passing(NoRoom::from(exceeded).to_string()))?;
    held.extend(tree_held.take());
    let page = parse(&text).ok_or_else(|| {
        let words = "its answer to `tools/list` has no list as `tools`".to_owned();
        Fault::lasting(words)
    });
    page.map(Some)
}

/// Parses one page. Go and PHP write an empty list as null or as an empty object.
fn parse(text: &[u8]) -> Option<Page> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members<'a> {
        /// Whatever is there: null is not the same as nothing.
        #[serde(borrow)]
        tools: &'a RawValue,
        #[serde(default)]
        next_cursor: Value,
    }
    let repaired = surrogates::repaired(text);
    let members: Members<'_> = serde_json::from_slice(&repaired).ok()?;
    let tools: Vec<&RawValue> = match members.tools.get() {
        "{}" | "null" => Vec::new(),
        list => serde_json::from_str(list).ok()?,
    };
    Some(Page {
        tools: tools.into_iter().map(tool).collect::<Result<_, _>>().ok()?,
        next: match members.next_cursor {
            Value::String(next) if !next.is_empty() => Some(next),
            Value::Number(next) => Some(next.to_string()),
            _ => None,
        },
        bytes: text.len(),
    })
}

/// A tool. One that is nested too deeply for parsers keeps only its name.
fn tool(raw: &RawValue) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        name: Value,
    }
    if nesting::within(raw.get().as_bytes(), MAX_LEVELS) {
        return serde_json::from_str(raw.get());
    }
    let named = serde_json::from_str::<Named>(raw.get())?;
    Ok(json!({"name": named.name, TOO_DEEP: true}))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::inbox::testing::inbox;

    #[test]
    fn a_handshake_needs_no_more_members_than_its_meaning() {
        let latest = LATEST_WITH_SESSIONS.as_str();
        for (result, version, software) in [
            (json!({"protocolVersion": "2025-03-26"}), "2025-03-26", None),
            (
                json!({"protocolVersion": "2025-03-26", "capabilities": [], "serverInfo": []}),
                "2025-03-26",
                None,
            ),
            (
                json!({"capabilities": {"tools": [], "experimental": []}, "_meta": []}),
                latest,
                None,
            ),
            (
                json!({"serverInfo": {"name": "s", "version": 2}, "protocolVersion": null}),
                latest,
                Some("s 2"),
            ),
            (
                json!({"serverInfo": "s", "capabilities": true, "instructions": 7}),
                latest,
                Some("s"),
            ),
        ] {
            let read = hello(result.to_string().as_bytes(), Era::Sessions, &inbox().source).unwrap();
            assert_eq!(
                (&*read.protocol, read.software.as_deref()),
                (version, software),
                "{result}"
            );
        }
        for nothing in ["{}", "[]", "7", r#"{"protocolVersion":7}"#] {
            assert!(hello(nothing.as_bytes(), Era::Sessions, &inbox().source).is_err());
        }
        let newer = br#"{"supportedVersions":["2027-01-01"]}"#;
        let error = hello(newer, Era::Stateless, &inbox().source).unwrap_err();
        assert!(
            error.contains("versions 2027-01-01, and gavel supports 2026-07-28"),
            "{error}"
        );
    }
}
