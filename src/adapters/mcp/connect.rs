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
use rmcp::model::{
    ClientRequest, ListToolsRequest, PaginatedRequestParams, ProtocolVersion, ServerPeerInfo, ServerResult,
    SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, RunningService, ServiceError,
    Subscription,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;
use url::Url;

use super::beside::Beside;
use super::config::{ServerConfig, TransportConfig};
use super::definition::MAX_LISTED;
use super::handler::{Handler, client_info};
use super::http::direct::Direct;
use super::http::{self, Tap};
use super::log;
use super::source::Source;
use super::stdio::{self, LastWords};
use super::unsolicited::{Flood, Unsolicited};
use crate::domain::budget::Share;

/// How long an HTTP server may be silent when asked by `server/discover`.
const DISCOVER: Duration = Duration::from_millis(1500);
/// Pages of a list that are read.
const MAX_PAGES: usize = 64;
/// Bytes of a list that are read, all pages together.
const MAX_LIST: usize = 16 * 1024 * 1024;
/// Longest words of a reason, in bytes.
const MAX_WORDS: usize = 512;

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

/// A list of tools, and what it takes of the budget of answers.
pub(super) struct List {
    pub(super) tools: Vec<Value>,
    _held: Vec<Share>,
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
) -> Result<Open, String> {
    let unsolicited = Unsolicited::new(source.clone(), beside.clone());
    let opening = match &server.transport {
        None => return Err(server.off.clone().unwrap_or_else(|| "off".to_owned())),
        Some(config @ TransportConfig::Stdio { .. }) => open_stdio(config, base_env, &unsolicited).boxed(),
        Some(TransportConfig::Http { url, headers }) => {
            let (client, headers) = (http::client(url)?, http::headers(headers)?);
            let unsolicited = &unsolicited;
            async move { open_http(url, &client, &headers, unsolicited).await }.boxed()
        }
    };
    tokio::select! {
        biased;
        () = unsolicited.flooded() => Err(Flood.to_string()),
        open = opening => open,
    }
}

async fn open_stdio(
    config: &TransportConfig,
    base_env: &[(&'static str, String)],
    unsolicited: &Arc<Unsolicited>,
) -> Result<Open, String> {
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
        Err(first) if first.is_refusal() => start(discover())
            .await
            .map_err(|error| format!("{}, and then: {}", first.words(source), error.words(source)))?,
        Err(error) => return Err(error.words(source)),
    };
    let list = list(running.peer(), unsolicited).await.map_err(|fault| fault.words)?;
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

    fn words(&self, source: &Source) -> String {
        match self {
            Self::Start(words) => source.words(words, MAX_WORDS),
            Self::Handshake(error, last_words) => match last_words.get() {
                Some(line) => format!("{}; its last line on stderr: {line}", words(error, source)),
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
) -> Result<Open, String> {
    let source = &unsolicited.source;
    let serve = |mode| async {
        let tap = Tap::new(client.clone(), unsolicited.clone());
        let running = Handler
            .serve_with_lifecycle(http::transport(tap.clone(), url, headers), mode)
            .await?;
        Ok((running, tap))
    };
    let auto = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let first = match tokio::time::timeout(DISCOVER, serve(auto)).await {
        Ok(Ok(open)) => Ok(open),
        Ok(Err(error)) if is_refused_connection(&error) => return Err(words(&error, source)),
        Ok(Err(error)) => Err(Some(words(&error, source))),
        Err(_) => Err(None),
    };
    let (running, tap) = match first {
        Ok(open) => open,
        // Odd answers to an unknown method say nothing about `initialize`, but may say why that fails as well.
        Err(first) => serve(ClientLifecycleMode::Initialize).await.map_err(|error| {
            let then = words(&error, source);
            match first.filter(|first| *first != then) {
                Some(first) => format!("{first}, and then: {then}"),
                None => then,
            }
        })?,
    };
    let list = list(running.peer(), unsolicited).await.map_err(|fault| fault.words)?;
    let info = running.peer().peer_info().ok_or("it said nothing about itself")?;
    let direct = Direct::new(
        client.clone(),
        url.clone(),
        headers.clone(),
        tap.session().as_deref(),
        &info.protocol_version,
        &client_info(),
        unsolicited.clone(),
    )?;
    Ok(Open {
        running,
        direct: Some(Arc::new(direct)),
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

/// Lists all tools, each as the JSON it came as, so that one odd tool does not hide the others. Where there are more than
/// [`MAX_LISTED`], it ends with the first one beyond.
///
/// # Errors
/// Why there is no list.
pub(super) async fn list(peer: &Peer<RoleClient>, unsolicited: &Unsolicited) -> Result<List, NoList> {
    let listing = unsolicited.reads_list();
    let tools = read_list(peer, &unsolicited.source).await?;
    Ok(List {
        tools,
        _held: listing.end(),
    })
}

async fn read_list(peer: &Peer<RoleClient>, source: &Source) -> Result<Vec<Value>, NoList> {
    let mut tools = Vec::new();
    let mut cursor: Option<String> = None;
    let mut bytes = 0;
    for _ in 0..MAX_PAGES {
        // Not by `list_tools`, which may answer from a cache.
        let request = ListToolsRequest {
            method: Default::default(),
            params: Some(PaginatedRequestParams::default().with_cursor(cursor.take())),
            extensions: Default::default(),
        };
        let page = match peer.send_request(ClientRequest::ListToolsRequest(request)).await {
            Ok(ServerResult::ListToolsResult(page)) => serde_json::to_value(page),
            // rmcp reads a list with one malformed tool as a result it does not know.
            Ok(ServerResult::CustomResult(page)) => Ok(page.0),
            Ok(other) => serde_json::to_value(other),
            Err(ServiceError::McpError(error)) if error.code == rmcp::model::ErrorCode::METHOD_NOT_FOUND => {
                return Ok(tools);
            }
            Err(error) => {
                return Err(NoList {
                    answered: matches!(error, ServiceError::McpError(_)),
                    words: format!(
                        "its tools could not be listed: {}",
                        source.words(&error.to_string(), MAX_WORDS)
                    ),
                });
            }
        };
        let mut page = page.map_err(|error| NoList::answered(error.to_string()))?;
        bytes += page.to_string().len();
        if bytes > MAX_LIST {
            let words = format!("its list of tools has more than {MAX_LIST} bytes");
            return Err(NoList::answered(words));
        }
        match page.get_mut("tools").map(Value::take) {
            Some(Value::Array(more)) => tools.extend(more),
            _ => {
                let words = "its answer to `tools/list` holds no tools".to_owned();
                return Err(NoList::answered(words));
            }
        }
        if tools.len() > MAX_LISTED {
            tools.truncate(MAX_LISTED + 1);
            return Ok(tools);
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(tools),
        }
    }
    let words = format!("its list of tools has more than {MAX_PAGES} pages");
    Err(NoList::answered(words))
}

/// Why there is no list of tools.
pub(super) struct NoList {
    /// Was there an answer, or may there still be one? Then the connection may be well.
    pub(super) answered: bool,
    pub(super) words: String,
}

impl NoList {
    fn answered(words: String) -> Self {
        Self { answered: true, words }
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
    let text = match (error, http_error(error)) {
        (_, Some(StreamableHttpError::Client(error))) => http::why(error),
        (ClientInitializeError::TransportError { error, .. }, _) => error.error.to_string(),
        (ClientInitializeError::JsonRpcError(error), _) => format!("it refused the handshake: {}", error.message),
        (ClientInitializeError::ConnectionClosed(_), _) => "it closed the connection before it answered".to_owned(),
        (ClientInitializeError::LegacyFallbackFailed { fallback, .. }, _) => return words(fallback, source),
        (other, _) => other.to_string(),
    };
    source.words(&text, MAX_WORDS)
}
