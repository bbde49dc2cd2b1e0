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
use rmcp::model::{ProtocolVersion, ServerPeerInfo, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, RunningService, Subscription,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use url::Url;

use super::background::SideTasks;
use super::config::{ServerConfig, TransportConfig};
use super::fault::{Fault, MAX_WORDS};
use super::handler::{Handler, client_info};
use super::http::direct::Direct;
use super::http::{self, Tap};
use super::last_words::LastWords;
use super::list::{self, List, NoList};
use super::log;
use super::source::Source;
use super::stdio;
use super::unsolicited::{Flood, Unsolicited};

/// How long an HTTP server may take to answer `server/discover`.
const DISCOVER: Duration = Duration::from_millis(1500);
/// An open connection.
pub(super) struct Open {
    pub(super) running: RunningService<RoleClient, Handler>,
    /// The path around rmcp, over HTTP.
    pub(super) direct: Option<Arc<Direct>>,
    pub(super) pid: Option<u32>,
    pub(super) last_words: LastWords,
    /// The server's unsolicited messages.
    pub(super) unsolicited: Arc<Unsolicited>,
    /// The tools as the server lists them.
    pub(super) list: List,
}

impl From<NoList> for Fault {
    fn from(fault: NoList) -> Self {
        Self {
            words: fault.words,
            is_lasting: fault.is_lasting,
        }
    }
}

impl Open {
    pub(super) fn peer_info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.running.peer().peer_info()
    }
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
    let unsolicited = Unsolicited::new(source.clone(), background.clone());
    let opening = match &server.transport {
        None => return Err(Fault::lasting(server.off.clone().unwrap_or_else(|| "off".to_owned()))),
        Some(config @ TransportConfig::Stdio { .. }) => open_stdio(config, base_env, &unsolicited).boxed(),
        Some(TransportConfig::Http { url, headers }) => {
            let client = http::client(url).map_err(Fault::lasting)?;
            let headers = http::headers(headers).map_err(Fault::lasting)?;
            let unsolicited = &unsolicited;
            async move { open_http(url, &client, &headers, unsolicited).await }.boxed()
        }
    };
    tokio::select! {
        biased;
        () = unsolicited.flooded() => Err(Fault::passing(Flood.to_string())),
        open = opening => open,
    }
}

async fn open_stdio(
    config: &TransportConfig,
    base_env: &[(&'static str, String)],
    unsolicited: &Arc<Unsolicited>,
) -> Result<Open, Fault> {
    let source = &unsolicited.source;
    let start = |mode| async {
        let child = stdio::start(unsolicited, config, base_env).map_err(Failed::Start)?;
        let (pid, last_words) = (child.pid, child.last_words);
        match Handler.serve_with_lifecycle(child.transport, mode).await {
            Ok(running) => Ok((running, pid, last_words)),
            Err(error) => Err(Failed::Handshake(Box::new(error), last_words)),
        }
    };
    let (running, pid, last_words) = match start(ClientLifecycleMode::Initialize).await {
        Ok(started) => started,
        Err(first) if first.is_refusal() => match start(discover()).await {
            Ok(started) => started,
            Err(error) => {
                let (first, then) = (first.words(source).await, error.words(source).await);
                return Err(Fault::passing(format!("{first}, and then: {then}")));
            }
        },
        Err(error) => return Err(Fault::passing(error.words(source).await)),
    };
    let list = list::read(running.peer(), unsolicited).await?;
    Ok(Open {
        running,
        direct: None,
        pid,
        last_words,
        unsolicited: unsolicited.clone(),
        list,
    })
}

/// Why a child is not a usable server.
enum Failed {
    Start(String),
    Handshake(Box<ClientInitializeError>, LastWords),
}

impl Failed {
    /// Did the server itself reject `initialize`?
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Handshake(error, _) if matches!(**error, ClientInitializeError::JsonRpcError(_)))
    }

    async fn words(&self, source: &Source) -> String {
        match self {
            Self::Start(words) => source.words(words, MAX_WORDS),
            Self::Handshake(error, last_words) => match last_words.get().await {
                Some(line) => format!("{}; on stderr it wrote: {line}", words(error, source)),
                None => words(error, source),
            },
        }
    }
}

async fn open_http(
    url: &Url,
    client: &reqwest::Client,
    headers: &reqwest::header::HeaderMap,
    unsolicited: &Arc<Unsolicited>,
) -> Result<Open, Fault> {
    let source = &unsolicited.source;
    let serve = |mode| async {
        let tap = Tap::new(client.clone(), url.clone(), unsolicited.clone());
        let transport = http::transport(tap.clone(), url, headers);
        match Handler.serve_with_lifecycle(transport, mode).await {
            Ok(running) => Ok((running, tap)),
            Err(error) => Err((error, tap)),
        }
    };
    let auto = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let first = match tokio::time::timeout(DISCOVER, serve(auto)).await {
        Ok(Ok(open)) => Ok(open),
        // An immediate second request would fail in the same way.
        Ok(Err((error, tap)))
            if is_refused_connection(&error) || tap.has_initialized() || unsolicited.background.rests().is_some() =>
        {
            return Err(fault(&error, &tap, source));
        }
        Ok(Err((error, tap))) => Err(Some(fault(&error, &tap, source).words)),
        Err(_) => Err(None),
    };
    let (running, tap) = match first {
        Ok(open) => open,
        // An unexpected answer to an unknown method says nothing about `initialize`, but may explain why that fails as
        // well.
        Err(first) => serve(ClientLifecycleMode::Initialize).await.map_err(|(error, tap)| {
            let then = fault(&error, &tap, source);
            match first.filter(|first| *first != then.words) {
                Some(first) => Fault {
                    words: format!("{first}, and then: {}", then.words),
                    ..then
                },
                None => then,
            }
        })?,
    };
    let list = match list::read(running.peer(), unsolicited).await {
        Ok(list) => list,
        Err(fault) => {
            let is_lasting = fault.is_lasting || tap.fault().is_some_and(|fault| fault.is_lasting);
            return Err(Fault {
                words: fault.words,
                is_lasting,
            });
        }
    };
    let info = running.peer().peer_info();
    let info = info.ok_or_else(|| Fault::lasting("it sent no information about itself".to_owned()))?;
    let direct = Direct::new(
        client.clone(),
        // The address after the redirects of the handshake.
        tap.url(),
        headers.clone(),
        tap.session().as_deref(),
        &info.protocol_version,
        &client_info(),
        unsolicited.clone(),
    );
    Ok(Open {
        running,
        direct: Some(Arc::new(direct.map_err(Fault::lasting)?)),
        pid: None,
        last_words: LastWords::default(),
        unsolicited: unsolicited.clone(),
        list,
    })
}

/// This side's first fault is preferred, because rmcp may only report that there was no answer.
fn fault(error: &ClientInitializeError, tap: &Tap, source: &Source) -> Fault {
    match tap.fault() {
        Some(fault) => Fault {
            words: source.words(&fault.words, MAX_WORDS),
            ..fault
        },
        None => Fault::passing(words(error, source)),
    }
}

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// Servers of the 2026-07-28 era report changes only to subscribers.
pub(super) async fn subscribe(peer: &Peer<RoleClient>, source: &Source) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let tells = info.capabilities.tools.as_ref()?.list_changed == Some(true);
    if !tells || info.protocol_version.has_initialize() {
        return None;
    }
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    match peer.listen(filter).await {
        Ok(subscription) => Some(subscription),
        Err(error) => {
            let error = source.words(&error.to_string(), MAX_WORDS);
            log::line!(
                source.log,
                warn,
                "no subscription",
                error,
                "changes to its tools will not be noticed"
            );
            None
        }
    }
}

fn is_refused_connection(error: &ClientInitializeError) -> bool {
    matches!(http_error(error), Some(StreamableHttpError::Client(error)) if error.is_connect())
}

fn http_error(error: &ClientInitializeError) -> Option<&StreamableHttpError<reqwest::Error>> {
    match error {
        ClientInitializeError::TransportError { error, .. } => error.error.downcast_ref(),
        _ => None,
    }
}

/// A failed handshake for an operator: only the cause, because rmcp's own errors print whole messages.
fn words(error: &ClientInitializeError, source: &Source) -> String {
    let listed = |versions: &[ProtocolVersion]| {
        let versions: Vec<_> = versions.iter().map(ProtocolVersion::as_str).collect();
        versions.join(", ")
    };
    let text = match error {
        ClientInitializeError::TransportError { error, .. } => http::words(&*error.error),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused the handshake: {} (code {})", error.message, error.code.0)
        }
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection before it answered".to_owned(),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => return words(fallback, source),
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "its answer to the handshake has no `protocolVersion` and no `supportedVersions`".to_owned()
        }
        ClientInitializeError::ConflictInitResponseId(expected, got)
        | ClientInitializeError::UncorrelatedErrorResponse {
            expected,
            received: got,
        } => format!("its answer to the handshake has the `id` {got}, and the request has {expected}"),
        ClientInitializeError::NoCompatibleProtocolVersion {
            client_supported,
            server_supported,
        } => format!(
            "it supports the protocol versions {}, and gavel supports {}",
            listed(server_supported),
            listed(client_supported)
        ),
        other => other.to_string(),
    };
    source.words(&text, MAX_WORDS)
}
