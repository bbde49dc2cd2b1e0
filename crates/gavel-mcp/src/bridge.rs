//! All servers together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use gavel_reading::ReadError;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attempt::IdentitySigner;
use super::config::McpConfig;
use super::connection::Common;
use super::definition::Offer;
use super::server::Server;
use super::source;
use super::tool_listing::ToolListing;
use super::tool_listing::{AcceptedTool, PinError, Pins};
use crate::domain::journal::CallFailure;
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::BoxFuture;
use crate::ports::metrics::MCP_TOOLS;
use crate::ports::tools::{CallReply, CallRequest, Catalog, LeftOut, Tools};

/// How long a shutdown waits for connections to close. A stdio child is killed after 6 s.
const SHUTDOWN: Duration = Duration::from_secs(12);
/// How long [`Mcp::refresh`] waits for a server.
const REFRESH: Duration = Duration::from_secs(10);
/// How soon a tool is offered again after an operator accepted it in another process.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Options that are not in the configuration file.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Maximum time from the start of a connection (including the start of a child) to its list of tools.
    pub attempt_limit: Duration,
    /// Largest result passed to the engine, in bytes of JSON.
    pub result_bytes: usize,
    /// Maximum users with a connection of their own to one server (`connection: per_user`).
    pub max_users: usize,
    /// How long such a connection is kept without a call.
    pub user_idle: Duration,
    /// File with the accepted digests of pinned tools, if any server is pinned. Without it, they are kept only while
    /// the process runs.
    pub pins: Option<PathBuf>,
}

impl Default for McpOptions {
    /// 30 s, 256 KiB, 256 users, 10 minutes, no file.
    fn default() -> Self {
        Self {
            attempt_limit: Duration::from_secs(30),
            result_bytes: 256 * 1024,
            max_users: 256,
            user_idle: Duration::from_secs(600),
            pins: None,
        }
    }
}

/// The servers of `mcp.json`, connected in the background.
pub struct Mcp {
    servers: BTreeMap<Arc<str>, Server>,
    common: Arc<Common>,
    warnings: Vec<ReadError>,
}

/// Why the bridge could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file with accepted digests exists but cannot be read.
    #[error("the accepted tools in {} cannot be read: {source}", path.display())]
    Pins {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Mcp {
    /// Starts connecting to all servers and returns immediately. Requires a tokio runtime and an installed metrics
    /// recorder.
    ///
    /// # Errors
    /// [`StartError`]. An unreachable server is not an error.
    pub fn start(config: McpConfig, options: McpOptions) -> Result<Arc<Self>, StartError> {
        // Without pinned servers, the file is not needed.
        let pinned = config.servers.iter().any(|server| server.gavel.pin);
        let path = options.pins.filter(|_| pinned);
        let pins = Pins::open(path.clone()).map_err(|source| StartError::Pins {
            path: path.unwrap_or_default(),
            source,
        })?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let common = Arc::new(Common {
            registry: Registry::new(),
            pins,
            signer: config.identity_secret.as_ref().map(IdentitySigner::new),
            answers: source::budget(),
            base_env: Arc::new(config.base_env),
            attempt_limit: options.attempt_limit,
            result_bytes: options.result_bytes,
            max_users: options.max_users,
            user_idle: options.user_idle,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let servers: BTreeMap<_, _> = config
            .servers
            .into_iter()
            .map(|server| (server.name.clone(), Server::start(server, &common)))
            .collect();
        if pinned {
            let listings = servers
                .values()
                .map(Server::listing)
                .filter(|listing| listing.is_pinned());
            let watching = look_again(listings.cloned().collect(), common.stop.clone());
            common.tasks.spawn(watching);
        }
        Ok(Arc::new(Self {
            servers,
            common,
            warnings: config.warnings,
        }))
    }

    /// Suspicious but harmless parts of the configuration.
    pub fn warnings(&self) -> &[ReadError] {
        &self.warnings
    }

    /// The status of the servers, ordered by name.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.servers.values().map(Server::status).collect()
    }

    /// Lists a server's tools again, and connects immediately if the server is down.
    ///
    /// # Errors
    /// Why there is no new list, for an operator.
    pub async fn refresh(&self, server: &str) -> Result<(), String> {
        let found = self
            .servers
            .get(server)
            .ok_or_else(|| format!("no server is called `{server}`"))?;
        found.refresh(Instant::now() + REFRESH).await
    }

    /// The tools that are held back, with their servers' current definitions.
    pub fn held_back(&self) -> Vec<Arc<Tool>> {
        self.servers
            .values()
            .flat_map(|server| server.listing().held_back())
            .collect()
    }

    /// Accepts the current definition of a pinned tool; with `digest`, only if the digest matches.
    ///
    /// # Errors
    /// [`PinError`].
    pub fn accept_pin(&self, server: &str, tool: &str, digest: Option<&str>) -> Result<AcceptedTool, PinError> {
        let found = self.servers.get(server);
        found
            .ok_or_else(|| PinError::UnknownServer(server.to_owned()))?
            .listing()
            .accept(tool, digest)
    }

    /// Closes all connections and ends all children. Calls in progress end as lost, waiting calls as not sent.
    pub async fn shutdown(&self) {
        self.servers.values().for_each(Server::close);
        self.common.stop.cancel();
        self.common.tasks.close();
        if tokio::time::timeout(SHUTDOWN, self.common.tasks.wait()).await.is_err() {
            tracing::warn!("not all MCP connections closed in time");
        }
    }

    /// Could this server offer one of `names` (bare, or `server__tool`)?
    fn may_offer(server: &Server, names: &[String], known: &Catalog) -> bool {
        names.iter().any(|name| match name.split_once("__") {
            Some((prefix, tool)) if *prefix == *server.config.name => server.config.may_offer(tool),
            _ => server.config.may_offer(name) && !known.tools.iter().any(|tool| *tool.name == **name),
        })
    }
}

/// Applies what another process has accepted.
async fn look_again(listings: Arc<[Arc<ToolListing>]>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_some() {
        let listings = listings.clone();
        let looked = tokio::task::spawn_blocking(move || listings.iter().for_each(|listing| listing.look_again()));
        if looked.await.is_err() {
            tracing::error!("newly accepted tools could not be read");
        }
    }
}

impl Drop for Mcp {
    /// Without [`Mcp::shutdown`], the connections still end, but nothing waits for that.
    fn drop(&mut self) {
        self.common.stop.cancel();
    }
}

impl Tools for Mcp {
    fn catalog(&self) -> Arc<Catalog> {
        self.common.registry.current()
    }

    fn ready<'a>(&'a self, names: &'a [String], deadline: Instant) -> BoxFuture<'a, ()> {
        let starting: Vec<&Server> = self.servers.values().filter(|server| server.is_starting()).collect();
        if starting.is_empty() {
            return Box::pin(std::future::ready(()));
        }
        let known = self.catalog();
        let wanted: Vec<_> = starting
            .into_iter()
            .filter(|server| Self::may_offer(server, names, &known))
            .map(Server::started)
            .collect();
        Box::pin(async move {
            // Servers that are not ready in time appear in the catalog as down or missing.
            let _ = tokio::time::timeout_at(deadline.into(), join_all(wanted)).await;
        })
    }

    fn refresh_server<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.refresh(server))
    }

    fn call<'a>(&'a self, request: CallRequest<'a>) -> BoxFuture<'a, CallReply> {
        Box::pin(async move {
            match self.servers.get(&request.tool.server) {
                Some(server) => server.call(request).await,
                None => CallReply::NotSent(CallFailure::new(
                    FailureCode::Unavailable,
                    "its server is no longer configured".to_owned(),
                )),
            }
        })
    }
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Its name in `mcp.json`.
    pub name: Arc<str>,
    /// `stdio`, `http`, or absent for a server that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<&'static str>,
    /// The program, or the URL without parts that may be secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whether it can be called.
    pub state: ServerState,
    /// Why it cannot be called, for an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The negotiated protocol version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Name and version that the server reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Process id of a stdio child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Tools offered.
    pub tools: usize,
    /// Tools left out (the catalog has the reasons).
    pub left_out: usize,
    /// How often the connection was opened.
    pub connections: u64,
    /// Users with a connection of their own (`connection: per_user`).
    pub users: usize,
    /// Did many consecutive calls fail, with no success since? Most calls are then rejected immediately. If users have
    /// their own connections: is this true for all of them?
    pub breaker_open: bool,
}

/// Whether a server can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Connected.
    Up,
    /// Being connected.
    Connecting,
    /// Not connected; gavel retries in the background.
    Down,
    /// Not started.
    Off,
}

/// One server's contribution to the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    connecting: bool,
    down: Option<String>,
    left_out: Vec<LeftOut>,
}

type Part = (Vec<Arc<Tool>>, View);

/// The current [`Catalog`] and its parts.
#[derive(Debug, Default)]
pub(super) struct Registry {
    current: ArcSwap<Catalog>,
    parts: Mutex<BTreeMap<Arc<str>, Part>>,
}

impl Registry {
    pub(super) fn new() -> Self {
        MCP_TOOLS.get().set(0.0);
        Self::default()
    }

    /// The current snapshot.
    pub(super) fn current(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// A server is being connected for the first time.
    pub(super) fn connecting(&self, server: &Arc<str>) {
        let view = View {
            connecting: true,
            ..View::default()
        };
        self.publish(server, None, view);
    }

    /// A server is connected and offers these tools.
    pub(super) fn up(&self, server: &Arc<str>, offer: Offer) {
        self.publish(
            server,
            Some(offer.tools),
            View {
                left_out: offer.left_out,
                ..View::default()
            },
        );
    }

    /// A server is down. With `keep`, its tools remain for now, because it is expected back soon.
    pub(super) fn down(&self, server: &Arc<str>, reason: &str, keep: bool) {
        let tools = if keep { None } else { Some(Vec::new()) };
        self.publish(
            server,
            tools,
            View {
                down: Some(reason.to_owned()),
                ..View::default()
            },
        );
    }

    fn publish(&self, server: &Arc<str>, tools: Option<Vec<Arc<Tool>>>, view: View) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.entry(server.clone()).or_default();
        let tools = tools.unwrap_or_else(|| part.0.clone());
        let same_tools = part.0.len() == tools.len() && part.0.iter().zip(&tools).all(|(a, b)| Arc::ptr_eq(a, b));
        if same_tools && part.1 == view {
            return;
        }
        *part = (tools, view);
        let mut catalog = Catalog {
            generation: self.current.load().generation + 1,
            ..Catalog::default()
        };
        for (name, (tools, view)) in parts.iter() {
            catalog.tools.extend(tools.iter().cloned());
            catalog.left_out.extend(view.left_out.iter().cloned());
            if view.connecting {
                catalog.connecting.insert(name.clone());
            }
            if let Some(reason) = &view.down {
                catalog.down.insert(name.clone(), reason.clone());
            }
        }
        MCP_TOOLS.get().set(catalog.tools.len() as f64);
        // Stored while the parts are locked, so that generations stay in order.
        self.current.store(Arc::new(catalog));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_generation_is_new_only_when_something_changed() {
        let registry = Registry::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let first = registry.current();
        assert_eq!(first.generation, 0);
        registry.down(&b, "refused", false);
        registry.up(&a, Offer::default());
        let known = registry.current();
        registry.down(&b, "refused", false);
        assert_eq!(registry.current().generation, known.generation);
        assert_eq!(known.down[&b], "refused");
        registry.down(&b, "timed out", false);
        assert_eq!(registry.current().generation, known.generation + 1);
        assert_eq!(known.down[&b], "refused", "an old snapshot does not change");
    }
}
