//! The one place that names adapters: everything is built from a [`Config`], in one function, so
//! that a test runs the same code as `gavel serve`.

mod agents;
mod edge;
mod google;
mod model;
mod policy;
mod servers;

use std::convert::Infallible;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use secrecy::ExposeSecret;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use agents::{Loaded, agents, agents_in};
pub use google::google;
pub use policy::{policy, read_policy};
pub use servers::{BUILT_IN as BUILT_IN_SERVERS, tool_settings};

use self::agents::Purpose;
use crate::adapters::demo::Demo;
use crate::adapters::gemini::Gemini;
use crate::adapters::jwks::Jwks;
use crate::adapters::mcp::Mcp;
use crate::adapters::queue::{Queue, QueueOptions};
use crate::adapters::quota::{LeasedQuota, LocalQuota};
use crate::adapters::store::{AtStart, AuditSecrets, ContentKey, ContentMode, Store, StoreConfig};
use crate::config::{Auth, Config, Console, Content, FileError, Jwt, JwtKeys, ModelConfig, Provider};
use crate::domain::definition::Constitution;
use crate::domain::ids::InstanceId;
use crate::domain::templates::Templates;
use crate::engine::Engine;
use crate::engine::agent::{Agents, Models, Running};
use crate::http::{self, ServerSettings};
use crate::ports::clock::SystemClock;
use crate::ports::model::Model;
use crate::ports::quota::Quota;
use crate::surfaces::agents::{AgentRuns, AtOnce, Directory, Worker};
use crate::surfaces::approvals::Approvals;
use crate::surfaces::chat::Chat;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::sessions::Sessions;
use crate::surfaces::threads::Threads;

/// How long what is cut short has to be recorded, and then what is answered to be sent.
pub const LAST_WORDS: Duration = Duration::from_secs(5);
/// A stop is over so long after the drain, also where a database or a server does not answer: each step of it has its own limit below.
pub const CLOSED: Duration = Duration::from_secs(40);

/// Everything that runs.
pub struct App {
    /// What it was built from.
    pub config: Config,
    /// The chat surface.
    pub chat: Arc<Chat>,
    /// The surface of agents.
    pub agents: Arc<AgentRuns>,
    /// The surface of threads.
    pub threads: Arc<Threads>,
    /// People's word on what waits for it.
    pub approvals: Arc<Approvals>,
    sessions: Arc<Sessions>,
    /// The analysts' queries.
    pub decisions: DecisionQueries,
    /// The MCP servers.
    pub mcp: Arc<Mcp>,
    /// The record.
    pub store: Arc<Store>,
    queue: Arc<Queue>,
    background: TaskTracker,
    stop: CancellationToken,
    stopping: Arc<AtomicBool>,
}

/// The HTTP server of an [`App`].
pub struct Serving {
    /// Where it listens; the port is the real one when port 0 was asked for.
    pub address: SocketAddr,
    handle: actix_web::dev::ServerHandle,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Serving {
    /// Comes back when the server has ended although nobody told it to; then there is nothing left to stop.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow!("the HTTP server ended by itself"),
            Ok(Err(error)) => anyhow::Error::from(error).context("the HTTP server ended"),
            Err(error) => anyhow::Error::from(error).context("the HTTP server broke down"),
        }
    }
}

impl App {
    /// Builds everything, to be served. MCP servers are connected in the background; a database that is away is
    /// waited for in the background as well, and `/readyz` says so.
    ///
    /// # Errors
    /// A file that is named and cannot be read or is wrong, a database that is wrong (not one that
    /// is merely away), a model that cannot be set up.
    pub async fn build(config: Config) -> anyhow::Result<Self> {
        Self::build_of(config, None, Purpose::Serving).await
    }

    /// As [`App::build`], for one command: agents that are wrong are told of and stop nothing.
    ///
    /// # Errors
    /// As [`App::build`], agents excepted.
    pub async fn build_for_command(config: Config) -> anyhow::Result<Self> {
        Self::build_of(config, None, Purpose::OneCommand).await
    }

    /// As [`App::build_for_command`], with another model than the one `config` names (`gavel eval --model-kind`).
    ///
    /// # Errors
    /// As [`App::build_for_command`].
    pub async fn build_with(config: Config, model: Arc<dyn Model>) -> anyhow::Result<Self> {
        Self::build_of(config, Some(model), Purpose::OneCommand).await
    }

    async fn build_of(config: Config, model: Option<Arc<dyn Model>>, purpose: Purpose) -> anyhow::Result<Self> {
        // Before the model, which keeps handles of its meters.
        edge::metrics();
        let model = match model {
            Some(model) => model,
            None => model::model(&config.model, &config.model.provider)?,
        };
        let constitution = constitution(&config)?;
        let policy = Arc::new(policy::policy(&config)?);
        let servers = servers::read(&config)?;
        let files = agents::Files::read(&config, purpose)?;
        let instance = InstanceId::new();
        let store = Store::open(store_config(&config, instance))
            .await
            .context("the record store cannot be opened")?;
        let options = QueueOptions {
            // What it works on has had the drain before.
            drain: LAST_WORDS,
            ..QueueOptions::default()
        };
        let queue = Queue::open(config.database_url.expose_secret(), instance, options)
            .context("the queue of runs cannot be opened")?;
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
        let runs = Arc::new(Agents {
            engine: engine.clone(),
            models: models.clone(),
            runs: store.clone(),
            actions: store.clone(),
            questions_stand: config.runs.approvals_expire,
            running: Running::default(),
        });
        let directory = Directory::new(Arc::clone(&files.agents), store.clone(), mcp.clone(), models);
        let at_once = AtOnce {
            waited_for: config.max_in_flight,
            background: config.runs.background,
        };
        let agents = AgentRuns::new(
            runs,
            directory,
            Arc::clone(&quota),
            at_once,
            config.runs.on_reject,
            config.runs.while_busy,
        );
        let threads = Threads::new(
            Arc::clone(&agents),
            store.clone(),
            config.runs.agent.clone(),
            config.runs.while_busy,
        );
        let approvals = Approvals::new(Arc::clone(&agents), store.clone());
        agents.set_queue(queue.clone());
        let Console { lasts, idle } = config.console;
        let sessions = Sessions::new(store.clone(), Arc::new(SystemClock), lasts, idle);
        // A process that has no place for them takes up no runs but those it is asked for itself.
        if config.runs.background > 0 {
            queue.start(Arc::new(Worker(Arc::clone(&agents))), config.runs.background);
            background.spawn(Arc::clone(&agents).sweep());
        }
        background.spawn(files.follow(stop.clone()));
        background.spawn(Arc::clone(&agents).keep_leases(config.runs.lease / 3));
        let chat = Chat::new(engine, quota, constitution, Templates::built_in(), config.max_in_flight);
        background.spawn(edge::fold_metrics(stop.clone()));
        let decisions = DecisionQueries::new(store.clone());
        let stopping = Arc::new(AtomicBool::new(false));
        Ok(Self {
            config,
            chat,
            agents,
            threads: Arc::new(threads),
            approvals: Arc::new(approvals),
            sessions: Arc::new(sessions),
            decisions,
            mcp,
            store,
            queue,
            background,
            stop,
            stopping,
        })
    }

    /// Listens and serves.
    ///
    /// # Errors
    /// The address cannot be listened on, or the keys of the issuer cannot be set up.
    pub fn serve(&self) -> anyhow::Result<Serving> {
        let listener =
            listen(self.config.listen).with_context(|| format!("cannot listen on {}", self.config.listen))?;
        let address = listener.local_addr()?;
        let settings = ServerSettings {
            workers: self.config.workers,
            drain: LAST_WORDS,
        };
        let server = http::server(edge::edge(self)?, listener, settings)?;
        let handle = server.handle();
        Ok(Serving {
            address,
            handle,
            task: self.background.spawn(server),
        })
    }

    /// Ends everything in order: what comes now is shed, what is under way is finished or, when the time to drain is
    /// over, cut short, and recorded either way; then the server, the MCP servers and the store are closed.
    pub async fn shutdown(self, serving: Option<Serving>) {
        self.stopping.store(true, Ordering::Relaxed);
        // What nobody waits for goes on wherever it is taken up next.
        self.agents.stop_background();
        self.queue.stop();
        let drained = async { tokio::join!(self.chat.drained(), self.agents.drained()) };
        if tokio::time::timeout(self.config.drain, drained).await.is_err() {
            tracing::warn!("the time to drain is exhausted; requests and runs under way are cut short");
            self.chat.cut_short();
            self.agents.stop_waited_for();
            let drained = async { tokio::join!(self.chat.drained(), self.agents.drained()) };
            if tokio::time::timeout(LAST_WORDS, drained).await.is_err() {
                tracing::warn!(
                    "some decisions or runs could not be recorded in time; recovery closes those that had begun to act"
                );
            }
        }
        // Also those who wait for runs that others work on, or watch them, are told that this process ends.
        self.agents.cut_short();
        if tokio::time::timeout(LAST_WORDS, self.agents.drained()).await.is_err() {
            tracing::warn!("some runs of agents did not end in time; another process continues them");
        }
        self.queue.shutdown().await;
        // Not before: a thread of the server ends when its last client has left, and what runs on it would end too.
        if let Some(serving) = serving {
            let closed = async {
                serving.handle.stop(true).await;
                if let Ok(Err(error)) = serving.task.await {
                    tracing::error!(%error, "the HTTP server ended with an error");
                }
            };
            // A thread of it that is blocked never says that it has stopped.
            if tokio::time::timeout(2 * LAST_WORDS, closed).await.is_err() {
                tracing::warn!("the HTTP server did not close in time; it ends with the process");
            }
        }
        self.agents.end();
        self.stop.cancel();
        self.background.close();
        if tokio::time::timeout(LAST_WORDS, self.background.wait()).await.is_err() {
            tracing::warn!("some tasks did not end in time; they end with the process");
        }
        tokio::join!(self.mcp.shutdown(), self.store.shutdown());
    }
}

/// The MCP servers alone. They are connected in the background.
///
/// # Errors
/// The `mcp.json` is wrong.
pub fn mcp(config: &Config) -> anyhow::Result<Arc<Mcp>> {
    Ok(Mcp::start(servers::read(config)?, servers::options(config))?)
}

/// Gemini alone by one of its providers, to ask how it is; `None` for the demo model.
///
/// # Errors
/// Its settings or credentials are wrong.
pub fn gemini(config: &ModelConfig, provider: &Provider) -> anyhow::Result<Option<Gemini>> {
    model::real(config, provider)
}

/// Which models definitions may name by their provider, to tell which agents can run. They are stand-ins: nobody is asked, and
/// to make the real ones may need credentials.
#[must_use]
pub fn providers(config: &ModelConfig) -> Models {
    let stand_in: Arc<dyn Model> = Arc::new(Demo);
    let made = model::by_provider(config, &stand_in, |_| Ok::<_, Infallible>(Arc::clone(&stand_in)));
    match made {
        Ok(models) => models,
        Err(never) => match never {},
    }
}

/// The keys of the issuer of tokens alone, to ask how they are; `None` when no issuer is asked for keys.
///
/// # Errors
/// The HTTP client cannot be made.
pub fn issuer(config: &Config) -> anyhow::Result<Option<Jwks>> {
    match &config.auth {
        Auth::Jwt(Jwt {
            keys: JwtKeys::Jwks(url),
            ..
        }) => Ok(Some(Jwks::new(url.clone())?)),
        _ => Ok(None),
    }
}

/// Most bytes that the kernel holds for one client beside what is on its way: otherwise some MB for each that takes nothing.
#[cfg(target_os = "linux")]
const NOT_SENT: u32 = 128 * 1024;

/// With room for a burst of new connections: one that finds no room waits a second for its next try.
///
/// # Errors
/// The address is in use, or not to be had.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(NOT_SENT)?;
    socket.bind(address)?;
    socket.listen(4096)?.into_std()
}

/// The constitution named, or the one that is built in.
///
/// # Errors
/// It cannot be read, or every mistake in it.
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
        FileError(format!("the constitution is wrong:\n{}", lines.join("\n")))
    })
}

/// The keys of the audit, as the store takes them.
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

/// Counted by this process alone, and where replicas may share a database, together with them.
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
