//! The state of the HTTP edge: authentication, health and metrics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;

use super::conditions::sandbox_of;
use super::google::AtCallback;
use super::parts::{bind, every, listen};
use super::{App, LAST_WORDS};
use crate::adapters::jwks::Jwks;
use crate::adapters::mcp::{Mcp, ServerState, ServerStatus};
use crate::config::{self, JwtKeys};
use crate::http::caller::{Auth, ServiceKey, SharedSecret, Tokens};
use crate::http::google::Callback;
use crate::http::health::{McpServer, McpState, Surroundings};
use crate::http::{self, Edge, EdgeLimits, ServerSettings};
use crate::ports::metrics::{ALL, Kind};
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::caller::{Caller, Identity, KeySource};

/// Interval between two upkeep runs of the metrics recorder.
const FOLD: Duration = Duration::from_secs(1);

/// Connections of one command: `gavel eval` has up to 256 requests at once, other commands a request and a stream.
const OF_ONE_COMMAND: usize = 320;

/// The wanted number of connections, at most half of the files that the process may open: the other half is for the
/// database, the servers and the model. Many systems allow 1024 open files until the process raises its limit, which
/// this function does.
#[cfg(unix)]
fn connections(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(open) = current else { return wanted };
    let needed = 2 * wanted as u64;
    let more = maximum.map_or(needed, |most| most.min(needed));
    let raised = Rlimit {
        current: Some(more),
        maximum,
    };
    let open = match (more > open).then(|| setrlimit(Resource::Nofile, raised)) {
        None => open,
        Some(Ok(())) => more,
        Some(Err(error)) => {
            tracing::warn!(%error, "the limit of open files could not be raised");
            open
        }
    };
    let most = usize::try_from(open / 2).map_or(wanted, |most| most.min(wanted));
    if most < wanted {
        tracing::warn!(
            open,
            connections = most,
            "only {most} of {wanted} connections can be served: raise the limit of open files"
        );
    }
    most
}

#[cfg(not(unix))]
fn connections(wanted: usize) -> usize {
    wanted
}

fn auth(config: &config::Auth) -> anyhow::Result<Auth> {
    Ok(match config {
        config::Auth::None => Auth::none(),
        config::Auth::ApiKeys(keys) => Auth::ApiKeys(keys.iter().map(service).collect()),
        config::Auth::Jwt(jwt) => {
            let keys: Arc<dyn KeySource> = match &jwt.keys {
                JwtKeys::Secret(secret) => Arc::new(
                    SharedSecret::new(secret.expose_secret().as_bytes()).context("auth.jwt.secret is too short")?,
                ),
                JwtKeys::Jwks(url) => Arc::new(Jwks::new(url.clone())?),
            };
            Auth::Jwt(Tokens {
                keys,
                issuer: jwt.issuer.clone(),
                audience: jwt.audience.clone(),
                tenant_claim: jwt.tenant_claim.clone(),
                roles_claim: jwt.roles_claim.clone(),
            })
        }
    })
}

fn service(key: &config::ApiKey) -> ServiceKey {
    let caller = Caller {
        tenant: key.tenant.clone(),
        identity: match &key.user {
            Some(user) => Identity::User(user.clone()),
            None => Identity::Service(Arc::from(key.name.as_str())),
        },
        roles: Arc::new(key.roles.iter().cloned().collect()),
    };
    ServiceKey {
        name: Arc::from(key.name.as_str()),
        sha256: key.sha256,
        caller,
    }
}

/// The exporter, with the buckets of each histogram.
fn exporter() -> Result<PrometheusBuilder, BuildError> {
    ALL.iter()
        .try_fold(PrometheusBuilder::new(), |exporter, metric| match metric.kind {
            Kind::Histogram(bounds) => exporter.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds),
            Kind::Counter | Kind::Gauge => Ok(exporter),
        })
}

/// One recorder per process, however many apps a test builds. Must be installed before anything is counted.
pub(super) fn metrics() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || {
        let exporter = exporter().and_then(PrometheusBuilder::install_recorder);
        let exporter = exporter.map_err(|error| tracing::error!(%error, "metrics are not recorded"));
        ALL.iter().for_each(|metric| metric.register());
        exporter.ok()
    };
    HANDLE.get_or_init(install).clone()
}

/// Histogram samples accumulate until this task or a reader of `/metrics` folds them, and there may be no such reader.
pub(super) async fn fold_metrics(stop: CancellationToken) {
    let Some(metrics) = metrics() else { return };
    let fold = || {
        metrics.run_upkeep();
        std::future::ready(())
    };
    every(FOLD, stop, fold).await;
}

struct Around {
    mcp: Arc<Mcp>,
    stopping: Arc<AtomicBool>,
    metrics: Option<PrometheusHandle>,
}

impl Surroundings for Around {
    fn servers(&self) -> Vec<McpServer> {
        let catalog = self.mcp.catalog();
        let all = self.mcp.status().into_iter();
        all.map(|status| server(status, &catalog)).collect()
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn metrics(&self) -> String {
        self.metrics.as_ref().map(PrometheusHandle::render).unwrap_or_default()
    }
}

fn server(status: ServerStatus, catalog: &Catalog) -> McpServer {
    let sandbox = match status.state {
        ServerState::Up => sandbox_of(&status.name, catalog),
        ServerState::Connecting | ServerState::Down | ServerState::Off => None,
    };
    McpServer {
        server: Some(status.name.to_string()),
        state: match status.state {
            ServerState::Up if status.breaker_open => McpState::Failing,
            ServerState::Up => McpState::Up,
            ServerState::Connecting => McpState::Connecting,
            ServerState::Down => McpState::Down,
            ServerState::Off => McpState::Off,
        },
        detail: status.reason.or_else(|| Some(format!("sandbox {}", sandbox?))),
    }
}

/// The HTTP server of an [`App`].
pub struct Serving {
    /// The address it listens on, with the actual port if port 0 was configured.
    pub address: SocketAddr,
    pub(super) handle: actix_web::dev::ServerHandle,
    pub(super) task: tokio::task::JoinHandle<std::io::Result<()>>,
    /// Whether a stop waits until clients have read their responses.
    pub(super) graceful: bool,
}

impl Serving {
    /// Resolves when the server has ended without a shutdown; then there is nothing left to stop.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow!("the HTTP server ended unexpectedly"),
            Ok(Err(error)) => anyhow::Error::from(error).context("the HTTP server ended with an error"),
            Err(error) => anyhow::Error::from(error).context("the HTTP server task failed"),
        }
    }
}

pub(super) fn cannot_listen(address: SocketAddr) -> String {
    format!("cannot listen on {address}; choose an address that is free with --listen or GAVEL_LISTEN")
}

/// Where programs of the same machine reach a service on this address.
pub fn reachable(address: SocketAddr) -> String {
    let local = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    match local.contains(&address.ip()) {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}

impl App {
    /// Listens on the address that was taken at the start, and serves.
    ///
    /// # Errors
    /// gavel cannot listen there, or serves already; the issuer's keys cannot be set up.
    pub fn serve(&self) -> anyhow::Result<Serving> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = socket.context("this service has no address, or serves already")?;
        let listener = listen(socket).with_context(|| cannot_listen(self.config.listen))?;
        let google = AtCallback::new(&self.config).map(|callback| Arc::new(callback) as Arc<dyn Callback>);
        let most = connections(EdgeLimits::default().connections);
        let edge = self.edge(auth(&self.config.auth)?, google, most);
        self.start(edge, listener, self.config.workers, true)
    }

    /// Serves the API alone, on a free loopback port, to one key.
    ///
    /// # Errors
    /// gavel cannot listen there.
    pub(super) fn serve_key(&self, key: ServiceKey) -> anyhow::Result<Serving> {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).and_then(listen);
        let listener = listener.context("cannot listen on a loopback port")?;
        let edge = self.edge(Auth::OneCommand(key), None, OF_ONE_COMMAND);
        self.start(edge, listener, Some(NonZeroUsize::MIN), false)
    }

    fn edge(&self, auth: Auth, google: Option<Arc<dyn Callback>>, connections: usize) -> Edge {
        let surroundings = Around {
            mcp: self.mcp.clone(),
            stopping: self.stopping.clone(),
            metrics: metrics(),
        };
        Edge {
            chat: self.chat.clone(),
            directory: self.directory.clone(),
            runs: self.runs.clone(),
            agents: self.agents.clone(),
            threads: self.threads.clone(),
            planning: self.planning.clone(),
            approvals: self.approvals.clone(),
            sessions: self.sessions.clone(),
            decisions: self.decisions.clone(),
            stats: self.stats.clone(),
            exports: self.exports.clone(),
            auth,
            surroundings: Arc::new(surroundings),
            google,
            limits: EdgeLimits {
                connections,
                ..EdgeLimits::default()
            },
        }
    }

    fn start(
        &self,
        edge: Edge,
        listener: TcpListener,
        workers: Option<NonZeroUsize>,
        graceful: bool,
    ) -> anyhow::Result<Serving> {
        let address = listener.local_addr()?;
        let drain = LAST_WORDS;
        let server = http::server(edge, listener, ServerSettings { workers, drain })?;
        Ok(Serving {
            address,
            handle: server.handle(),
            task: self.background.spawn(server),
            graceful,
        })
    }
}

#[cfg(test)]
mod serving_tests {
    use super::*;

    #[test]
    fn the_address_to_paste_can_be_reached() {
        for (address, expected) in [
            ("0.0.0.0:80", "localhost:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(reachable(address.parse().unwrap()), expected);
        }
    }
}
