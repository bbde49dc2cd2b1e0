//! Opens a connection from a server's entry and lists its tools.
//!
//! The protocol era of a server is found with the cheapest first guess:
//!
//! - HTTP: `server/discover` first, because every HTTP server answers something at once. A server of the session era
//!   rejects it, and `initialize` follows. A silent server gets 1.5 s.
//! - stdio: `initialize` first, because older servers never answer an earlier message. A server that rejects it is
//!   restarted and asked with `server/discover`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use reqwest::header::HeaderName;
use rmcp::model::ProtocolVersion;
use secrecy::SecretString;
use serde_json::{Value, json};
use url::Url;

use super::attempt::{Answered, Attempt, Fault, MAX_WORDS};
use super::background::SideTasks;
use super::config::{ServerConfig, TransportConfig};
use super::connection::{Connection, Hello, Wire, client_info};
use super::http::Http;
use super::inbox::{Flood, Inbox};
use super::list::{self, List};
use super::message;
use super::process::Process;
use super::source::Source;
use crate::domain::surrogates;

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
        let list = list::read(&connection).await.inspect_err(|_| {
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
