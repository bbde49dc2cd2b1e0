//! From a server's entry to an open connection with its tools listed.
//!
//! Which protocol era a server speaks is found out by what costs least when the guess is wrong:
//!
//! - HTTP: `server/discover` first, since every HTTP server answers something at once; a server of
//!   the session era refuses, and `initialize` follows. One that stays silent gets 1.5 s.
//! - stdio: `initialize` first, since older servers never answer what comes before it; a server
//!   that refuses it is started again and asked by `server/discover`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{ProtocolVersion, ServerPeerInfo, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, RunningService, Subscription,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use url::Url;

use super::beside::Beside;
use super::config::{ServerConfig, TransportConfig};
use super::handler::{Handler, client_info};
use super::http::direct::Direct;
use super::http::{self, Tap};
use super::last_words::LastWords;
use super::list::{self, List, NoList};
use super::log;
use super::source::Source;
use super::stdio;
use super::unsolicited::{Flood, Unsolicited};

/// How long an HTTP server may be silent when asked by `server/discover`.
const DISCOVER: Duration = Duration::from_millis(1500);
/// Longest words of a reason, in bytes.
pub(super) const MAX_WORDS: usize = 512;

/// An open connection.
pub(super) struct Open {
    pub(super) running: RunningService<RoleClient, Handler>,
    /// The way past rmcp, over HTTP.
    pub(super) direct: Option<Arc<Direct>>,
    pub(super) pid: Option<u32>,
    pub(super) last_words: LastWords,
    /// What the server sends of its own accord.
    pub(super) unsolicited: Arc<Unsolicited>,
    /// The tools as the server lists them.
    pub(super) list: List,
}

/// Why a connection could not be opened.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// For an operator.
    pub(super) words: String,
    /// It is one of the server's program or of the configuration, which another attempt does not change.
    pub(super) is_lasting: bool,
}

impl Fault {
    /// One that may be gone at the next attempt.
    pub(super) fn passing(words: String) -> Self {
        Self {
            words,
            is_lasting: false,
        }
    }

    pub(super) fn lasting(words: String) -> Self {
        Self {
            words,
            is_lasting: true,
        }
    }
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

/// Connects and lists, without a time limit of its own.
///
/// # Errors
/// Why it failed, in words for an operator.
pub(super) async fn open(
    server: &ServerConfig,
    base_env: &[(&'static str, String)],
    source: &Arc<Source>,
    beside: &Beside,
) -> Result<Open, Fault> {
    let unsolicited = Unsolicited::new(source.clone(), beside.clone());
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

/// Why a child is no server.
enum Failed {
    Start(String),
    Handshake(Box<ClientInitializeError>, LastWords),
}

impl Failed {
    /// Did the server itself say no to `initialize`?
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
    // What this side found first, since rmcp may say no more than that there was no answer.
    let fault = |error: &ClientInitializeError, tap: &Tap| match tap.fault() {
        Some(fault) => Fault {
            words: source.words(&fault.words, MAX_WORDS),
            ..fault
        },
        None => Fault::passing(words(error, source)),
    };
    let auto = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let first = match tokio::time::timeout(DISCOVER, serve(auto)).await {
        Ok(Ok(open)) => Ok(open),
        // Asked again at once it would say the same.
        Ok(Err((error, tap)))
            if is_refused_connection(&error) || tap.has_initialized() || unsolicited.beside.rests().is_some() =>
        {
            return Err(fault(&error, &tap));
        }
        Ok(Err((error, tap))) => Err(Some(fault(&error, &tap).words)),
        Err(_) => Err(None),
    };
    let (running, tap) = match first {
        Ok(open) => open,
        // Odd answers to an unknown method say nothing about `initialize`, but may say why that fails as well.
        Err(first) => serve(ClientLifecycleMode::Initialize).await.map_err(|(error, tap)| {
            let then = fault(&error, &tap);
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
    let info = info.ok_or_else(|| Fault::lasting("it said nothing about itself".to_owned()))?;
    let direct = Direct::new(
        client.clone(),
        // Where the handshake was led to.
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

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// Servers of the 2026-07-28 era tell of changes only to who has asked for it.
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
                "changes of its tools will not be seen"
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

/// A failed handshake for an operator: the cause, since rmcp's own words print whole messages.
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
            "it speaks the protocol versions {}, and gavel {}",
            listed(server_supported),
            listed(client_supported)
        ),
        other => other.to_string(),
    };
    source.words(&text, MAX_WORDS)
}
