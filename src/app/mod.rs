//! The one place that chooses adapters: everything is built from a [`Config`] in one function, so that tests run the
//! same code as `gavel serve`.

mod agents;
mod command;
mod edge;
mod google;
mod model;
mod policy;
mod servers;

use std::convert::Infallible;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use secrecy::ExposeSecret;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use agents::{Loaded, agents, agents_in};
pub(crate) use command::{OwnService, Work, fresh_key, is_in_use, operator};
pub use google::google;
pub use policy::{policy, read_policy};
pub use servers::{BUILT_IN as BUILT_IN_SERVERS, tool_settings};

use self::agents::Purpose;
use crate::adapters::demo::Demo;
use crate::adapters::gemini::Gemini;
use crate::adapters::jwks::Jwks;
use crate::adapters::mcp::{Mcp, McpConfig};
use crate::adapters::quota::{LeasedQuota, LocalQuota};
use crate::adapters::store::{AtStart, AuditSecrets, ContentKey, ContentMode, Store, StoreConfig};
use crate::config::{Auth, Config, Console, Content, FileError, Jwt, JwtKeys, ModelConfig, Provider};
use crate::domain::definition::Constitution;
use crate::domain::ids::InstanceId;
use crate::domain::templates::Templates;
use crate::engine::Engine;
use crate::engine::agent::{Agents, Models, Running};
use crate::http::caller::ServiceKey;
use crate::http::{self, ServerSettings};
use crate::ports::clock::SystemClock;
use crate::ports::model::Model;
use crate::ports::quota::Quota;
use crate::surfaces::agents::DeclaredAgents;
use crate::surfaces::approvals::Approvals;
use crate::surfaces::chat::Chat;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::definitions::Directory;
use crate::surfaces::runs::{AtOnce, Runs};
use crate::surfaces::sessions::Sessions;
use crate::surfaces::threads::{ThreadSettings, Threads};

/// Time to record interrupted work, and then to send the remaining responses.
pub const LAST_WORDS: Duration = Duration::from_secs(5);
/// Most time that a shutdown takes after the drain, even if a database or a server does not respond: each step has its
/// own limit below.
pub const CLOSED: Duration = Duration::from_secs(40);

/// All parts of the running service.
pub struct App {
    /// The configuration it was built from.
    pub config: Config,
    /// The chat surface.
    pub chat: Arc<Chat>,
    /// The definitions of agents.
    pub directory: Arc<Directory>,
    /// The life of runs.
    pub runs: Arc<Runs>,
    /// The surface of agents.
    pub agents: Arc<DeclaredAgents>,
    /// The surface of threads.
    pub threads: Arc<Threads>,
    /// The surface of approvals.
    pub approvals: Arc<Approvals>,
    sessions: Arc<Sessions>,
    /// The decision-log queries of analysts.
    pub decisions: DecisionQueries,
    /// The MCP bridge.
    pub mcp: Arc<Mcp>,
    /// The store.
    pub store: Arc<Store>,
    background: TaskTracker,
    stop: CancellationToken,
    stopping: Arc<AtomicBool>,
}

/// The HTTP server of an [`App`].
pub struct Serving {
    /// The address it listens on, with the actual port if port 0 was configured.
    pub address: SocketAddr,
    handle: actix_web::dev::ServerHandle,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
    /// Whether a stop waits until clients have read their responses.
    graceful: bool,
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

impl App {
    /// Builds everything for serving. MCP servers connect in the background. An unavailable database is awaited in the
    /// background as well, and `/readyz` reports it.
    ///
    /// # Errors
    /// A named file is unreadable or invalid, the database is invalid (not merely unavailable), or a model cannot be
    /// set up.
    pub async fn build(config: Config) -> anyhow::Result<Self> {
        Self::build_of(config, None, Purpose::Serving).await
    }

    /// As [`App::build`], for one command: invalid agents are logged and do not prevent the start.
    ///
    /// # Errors
    /// As [`App::build`], except for invalid agents.
    pub async fn build_for_command(config: Config) -> anyhow::Result<Self> {
        Self::build_of(config, None, Purpose::OneCommand).await
    }

    /// As [`App::build_for_command`], with another model than the one that `config` names (`gavel eval --model-kind`).
    ///
    /// # Errors
    /// As [`App::build_for_command`].
    pub async fn build_with(config: Config, model: Arc<dyn Model>) -> anyhow::Result<Self> {
        Self::build_of(config, Some(model), Purpose::OneCommand).await
    }

    /// Builds everything over an existing database, for reads alone: no MCP server is started, no run can begin, and no
    /// file that reads do not need is read.
    ///
    /// # Errors
    /// The database is missing, lacks migrations, or is unavailable.
    async fn build_for_reading(config: Config) -> anyhow::Result<Self> {
        Self::build_of(command::records_alone(config), None, Purpose::Records).await
    }

    async fn build_of(config: Config, model: Option<Arc<dyn Model>>, purpose: Purpose) -> anyhow::Result<Self> {
        let reads = purpose == Purpose::Records;
        // Before the model, which keeps handles of its metrics.
        edge::metrics();
        let model = match model {
            Some(model) => model,
            None => model::model(&config.model, &config.model.provider)?,
        };
        let constitution = constitution(&config)?;
        let policy = policy::policy(&config)?;
        let servers = match reads {
            true => McpConfig::default(),
            false => servers::read(&config)?,
        };
        let files = agents::Files::read(&config, purpose)?;
        let instance = InstanceId::new();
        let store_config = store_config(&config, instance);
        let store = match reads {
            true => Store::open_for_reading(store_config)
                .await
                .context("the database cannot be read")?,
            false => Store::open(store_config)
                .await
                .context("the record store cannot be opened")?,
        };
        let mcp = Mcp::start(servers, servers::options(&config))?;
        let (background, stop) = (TaskTracker::new(), CancellationToken::new());
        let quota = quota(&config, &store, &background, &stop);
        let models = model::by_provider(&config.model, &model, |other| model::model(&config.model, other))?;
        let engine = Engine {
            model,
            tools: mcp.clone(),
            recorder: store.clone(),
            clock: Arc::new(SystemClock),
            policy,
        };
        let engine_agents = Arc::new(Agents {
            engine: engine.clone(),
            models: models.clone(),
            runs: store.clone(),
            actions: store.clone(),
            approvals_expire: config.runs.approvals_expire,
            running: Running::default(),
        });
        let directory = Directory::new(Arc::clone(&files.agents), store.clone(), mcp.clone(), models);
        let directory = Arc::new(directory);
        let at_once = AtOnce {
            waited_for: config.max_in_flight,
            background: config.runs.background,
        };
        let runs = Runs::new(engine_agents, Arc::clone(&quota), at_once);
        let of_threads = ThreadSettings {
            agent: config.runs.agent.clone(),
            while_busy: config.runs.while_busy,
            on_reject: config.runs.on_reject,
        };
        let agents = DeclaredAgents::new(runs.clone(), directory.clone());
        let threads = Threads::new(runs.clone(), directory.clone(), store.clone(), of_threads);
        let approvals = Approvals::new(runs.clone(), directory.clone(), store.clone());
        let Console { lasts, idle } = config.console;
        let sessions = Sessions::new(store.clone(), Arc::new(SystemClock), lasts, idle);
        // A process without background capacity runs only what its own callers request.
        if !reads && config.runs.background > 0 {
            background.spawn(Arc::clone(&runs).sweep());
        }
        background.spawn(files.follow(stop.clone()));
        background.spawn(Arc::clone(&runs).keep_leases(config.runs.lease / 3));
        let chat = Chat::new(engine, quota, constitution, Templates::built_in(), config.max_in_flight);
        background.spawn(edge::fold_metrics(stop.clone()));
        let decisions = DecisionQueries::new(store.clone());
        let stopping = Arc::new(AtomicBool::new(false));
        Ok(Self {
            config,
            chat,
            directory,
            runs,
            agents: Arc::new(agents),
            threads: Arc::new(threads),
            approvals: Arc::new(approvals),
            sessions: Arc::new(sessions),
            decisions,
            mcp,
            store,
            background,
            stop,
            stopping,
        })
    }

    /// Listens and serves.
    ///
    /// # Errors
    /// gavel cannot listen on the address, or the issuer's keys cannot be set up.
    pub fn serve(&self) -> anyhow::Result<Serving> {
        let listener =
            listen(self.config.listen).with_context(|| format!("cannot listen on {}", self.config.listen))?;
        let address = listener.local_addr()?;
        let settings = ServerSettings {
            workers: self.config.workers,
            drain: LAST_WORDS,
        };
        let server = http::server(edge::edge(self)?, listener, settings)?;
        Ok(self.serving(server, address, true))
    }

    /// Serves the API alone, on a free loopback port, to one key.
    ///
    /// # Errors
    /// gavel cannot listen there.
    fn serve_key(&self, key: ServiceKey) -> anyhow::Result<Serving> {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).context("cannot listen on a loopback port")?;
        let address = listener.local_addr()?;
        let settings = ServerSettings {
            workers: Some(NonZeroUsize::MIN),
            drain: LAST_WORDS,
        };
        let server = http::server(edge::edge_of_command(self, key), listener, settings)?;
        Ok(self.serving(server, address, false))
    }

    fn serving(&self, server: actix_web::dev::Server, address: SocketAddr, graceful: bool) -> Serving {
        Serving {
            address,
            handle: server.handle(),
            task: self.background.spawn(server),
            graceful,
        }
    }

    /// Ends everything in order. New requests are refused. Work in progress is finished, or interrupted when the drain
    /// time is exhausted, and recorded either way. Then the server, the MCP servers and the store are closed.
    pub async fn shutdown(self, serving: Option<Serving>) {
        self.stopping.store(true, Ordering::Relaxed);
        // Background runs continue in the next process that claims them.
        self.runs.stop_background();
        let drained = async { tokio::join!(self.chat.drained(), self.runs.drained()) };
        if tokio::time::timeout(self.config.drain, drained).await.is_err() {
            tracing::warn!("the drain time is exhausted; requests and runs in progress are interrupted");
            self.chat.cut_short();
            self.runs.stop_waited_for();
            let drained = async { tokio::join!(self.chat.drained(), self.runs.drained()) };
            if tokio::time::timeout(LAST_WORDS, drained).await.is_err() {
                tracing::warn!(
                    "some decisions or runs were not recorded in time; recovery closes those that had started actions"
                );
            }
        }
        // Callers that watch or wait for runs of other processes also receive a notice that this process ends.
        self.runs.cut_short();
        if tokio::time::timeout(LAST_WORDS, self.runs.drained()).await.is_err() {
            tracing::warn!("some runs of agents did not end in time; another process continues them");
        }
        // Not before: a worker thread of the server ends when its last client disconnects, which would also end the
        // tasks on it.
        if let Some(serving) = serving {
            let closed = async {
                serving.handle.stop(serving.graceful).await;
                if let Ok(Err(error)) = serving.task.await {
                    tracing::error!(%error, "the HTTP server ended with an error");
                }
            };
            // A blocked worker thread never reports that it has stopped.
            if tokio::time::timeout(2 * LAST_WORDS, closed).await.is_err() {
                tracing::warn!("the HTTP server did not close in time; it ends with the process");
            }
        }
        self.runs.end();
        self.stop.cancel();
        self.background.close();
        if tokio::time::timeout(LAST_WORDS, self.background.wait()).await.is_err() {
            tracing::warn!("some tasks did not end in time; they end with the process");
        }
        tokio::join!(self.mcp.shutdown(), self.store.shutdown());
    }
}

/// The MCP bridge alone. The servers connect in the background.
///
/// # Errors
/// The `mcp.json` is invalid.
pub fn mcp(config: &Config) -> anyhow::Result<Arc<Mcp>> {
    Ok(Mcp::start(servers::read(config)?, servers::options(config))?)
}

/// Gemini alone through one of its providers, to check its health; `None` for the demo model.
///
/// # Errors
/// Its settings or credentials are invalid.
pub fn gemini(config: &ModelConfig, provider: &Provider) -> anyhow::Result<Option<Gemini>> {
    model::real(config, provider)
}

/// Which providers definitions may name, to determine which agents can run. The models are stand-ins and are never
/// called, because real ones may need credentials.
#[must_use]
pub fn providers(config: &ModelConfig) -> Models {
    let stand_in: Arc<dyn Model> = Arc::new(Demo);
    let made = model::by_provider(config, &stand_in, |_| Ok::<_, Infallible>(Arc::clone(&stand_in)));
    match made {
        Ok(models) => models,
        Err(never) => match never {},
    }
}

/// The token issuer's keys alone, to check their health; `None` when tokens are not verified with issuer keys.
///
/// # Errors
/// The HTTP client cannot be created.
pub fn issuer(config: &Config) -> anyhow::Result<Option<Jwks>> {
    match &config.auth {
        Auth::Jwt(Jwt {
            keys: JwtKeys::Jwks(url),
            ..
        }) => Ok(Some(Jwks::new(url.clone())?)),
        _ => Ok(None),
    }
}

/// Most unsent bytes that the kernel buffers per client; otherwise it buffers some MB for each client that does not
/// read.
#[cfg(target_os = "linux")]
const NOT_SENT: u32 = 128 * 1024;

/// Listens with a backlog for bursts: a connection that finds the backlog full retries only after a second.
///
/// # Errors
/// The address is in use or unavailable.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit this option.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(NOT_SENT)?;
    socket.bind(address)?;
    socket.listen(4096)?.into_std()
}

/// The named constitution, or the built-in one.
///
/// # Errors
/// It cannot be read, or it is invalid; all errors are reported.
pub fn constitution(config: &Config) -> Result<Constitution, FileError> {
    let (text, place) = match &config.constitution {
        None => (
            Constitution::BUILT_IN.to_owned(),
            "constitution.md (built in)".to_owned(),
        ),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| FileError(format!("the constitution {} cannot be read: {error}", path.display())))?;
            (text, path.display().to_string())
        }
    };
    Constitution::from_markdown(&text, &place).map_err(|errors| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        FileError(format!("the constitution is invalid:\n{}", lines.join("\n")))
    })
}

/// The keys of the audit log, as the store expects them.
pub(crate) fn audit_secrets(config: &Config) -> AuditSecrets {
    AuditSecrets {
        current: config.audit.key.clone(),
        old: config.audit.old_keys.clone(),
    }
}

fn store_config(config: &Config, instance: InstanceId) -> StoreConfig {
    StoreConfig {
        content: match &config.records {
            Content::Full => ContentMode::Full,
            Content::Hash(key) => ContentMode::Hash(ContentKey::new(key.expose_secret().as_bytes())),
            Content::None => ContentMode::None,
        },
        at_start: AtStart::Background,
        run_lease: config.runs.lease,
        runs_kept: config.runs.kept,
        audit: audit_secrets(config),
        ..StoreConfig::new(config.database_url.expose_secret(), instance)
    }
}

/// Counted by this process alone; where replicas may share a database, together with them.
fn quota(config: &Config, store: &Store, background: &TaskTracker, stop: &CancellationToken) -> Arc<dyn Quota> {
    let local = Arc::new(LocalQuota::new(config.rate_limit.per_minute, config.rate_limit.burst));
    background.spawn(sweep_quota(local.clone(), stop.clone()));
    let Some(buckets) = store.buckets() else {
        return local;
    };
    let leased = Arc::new(LeasedQuota::new(local, buckets, background.clone()));
    background.spawn(leased.clone().keep(stop.clone()));
    leased
}

async fn sweep_quota(quota: Arc<LocalQuota>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LocalQuota::SWEEP);
    loop {
        tokio::select! {
            _ = ticks.tick() => quota.sweep(),
            () = stop.cancelled() => return,
        }
    }
}
