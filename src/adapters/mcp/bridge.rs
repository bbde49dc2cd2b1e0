//! All servers together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answers;
use super::config::{ConfigIssue, McpConfig};
use super::meta::IdentitySigner;
use super::pins::{AcceptedTool, PinError, Pins};
use super::registry::Registry;
use super::server::{Common, Server};
use super::status::ServerStatus;
use super::tool_listing::ToolListing;
use crate::domain::journal::CallFailure;
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::BoxFuture;
use crate::ports::tools::{CallReply, CallRequest, Catalog, Tools};

/// Ends of connections are awaited for so long at a shutdown; a stdio child is killed after 6 s.
const SHUTDOWN: Duration = Duration::from_secs(12);
/// How long [`Mcp::refresh`] waits for a server.
const REFRESH: Duration = Duration::from_secs(10);
/// How often it is told how many lines were not logged.
const FLUSH: Duration = Duration::from_secs(60);
/// How soon a tool that an operator accepted in another process is offered again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What the configuration file does not say.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Longest time from the start of a connection (a child's start included) to its list of tools.
    pub attempt_limit: Duration,
    /// Largest result handed to the engine, in bytes of JSON.
    pub result_bytes: usize,
    /// Most users with a connection of their own to one server (`connection: per_user`).
    pub max_users: usize,
    /// How long such a connection is kept without a call.
    pub user_idle: Duration,
    /// Where accepted digests of pinned tools are kept, if any server is pinned; without it they last as long as the
    /// process.
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
    servers: Arc<BTreeMap<Arc<str>, Server>>,
    common: Arc<Common>,
    warnings: Vec<ConfigIssue>,
}

/// Why the bridge could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file with accepted digests is there and cannot be read.
    #[error("the accepted tools in {} cannot be read: {source}", path.display())]
    Pins {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Mcp {
    /// Starts connecting to all servers and returns at once. Needs a tokio runtime, and the
    /// metrics recorder to be installed before.
    ///
    /// # Errors
    /// [`StartError`]; a server that cannot be reached is none.
    pub fn start(config: McpConfig, options: McpOptions) -> Result<Arc<Self>, StartError> {
        // Where nothing is pinned the file is nobody's business.
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
            answers: answers::budget(),
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
        let servers = Arc::new(servers);
        common.tasks.spawn(flush_logs(servers.clone(), common.stop.clone()));
        Ok(Arc::new(Self {
            servers,
            common,
            warnings: config.warnings,
        }))
    }

    /// What is odd in the configuration but does no harm.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigIssue] {
        &self.warnings
    }

    /// How the servers are, by name.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        self.servers.values().map(Server::status).collect()
    }

    /// Lists a server's tools again; connects now when it is down.
    ///
    /// # Errors
    /// Why there is no new list, in words for an operator.
    pub async fn refresh(&self, server: &str) -> Result<(), String> {
        let found = self
            .servers
            .get(server)
            .ok_or_else(|| format!("no server is called `{server}`"))?;
        found.refresh(Instant::now() + REFRESH).await
    }

    /// The tools that are held back, as their servers give them now.
    #[must_use]
    pub fn held_back(&self) -> Vec<Arc<Tool>> {
        self.servers
            .values()
            .flat_map(|server| server.listing().held_back())
            .collect()
    }

    /// Accepts the definition a pinned tool has now; with `digest` only if that is its digest.
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

    /// Closes all connections and ends all children. Calls still under way end as lost, those that wait as not sent.
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

/// Tells how many lines of servers were not logged.
async fn flush_logs(servers: Arc<BTreeMap<Arc<str>, Server>>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(FLUSH)).await.is_some() {
        servers.values().for_each(Server::flush_log);
    }
}

/// Takes up what another process has accepted.
async fn look_again(listings: Arc<[Arc<ToolListing>]>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_some() {
        let listings = listings.clone();
        let looked = tokio::task::spawn_blocking(move || listings.iter().for_each(|listing| listing.look_again()));
        if looked.await.is_err() {
            tracing::error!("what was accepted meanwhile could not be looked at");
        }
    }
}

impl Drop for Mcp {
    /// Without [`Mcp::shutdown`] the connections still end, and nobody waits for it.
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
            // Those that are not there in time are named in the catalog as down or missing.
            let _ = tokio::time::timeout_at(deadline.into(), join_all(wanted)).await;
        })
    }

    fn read_anew<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.refresh(server))
    }

    fn call<'a>(&'a self, request: CallRequest<'a>) -> BoxFuture<'a, CallReply> {
        Box::pin(async move {
            match self.servers.get(&request.tool.server) {
                Some(server) => server.call(request).await,
                None => CallReply::NotSent(CallFailure::new(
                    FailureCode::Unavailable,
                    "its server is not configured any more".to_owned(),
                )),
            }
        })
    }
}
