//! The one place that chooses adapters: everything is built from a [`Config`] in one function, so that tests run the
//! same code as `gavel serve`.

mod agents;
mod command;
mod conditions;
mod edge;
mod google;
mod parts;
mod servers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use secrecy::ExposeSecret;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use agents::{Loaded, agents, agents_in};
pub(crate) use command::{OwnService, Work, fresh_key, running_process};
pub use conditions::{BundledConditions, shell_launcher};
pub use google::google;
pub use parts::{policy, prices, read_policy};
pub use servers::{BUILT_IN as BUILT_IN_SERVERS, KnownTools, known_tools};
pub use servers::{bundled, options_of};

use self::edge::cannot_listen;
pub use self::edge::{Serving, reachable};
pub(crate) use self::parts::audit_secrets;
pub use self::parts::{bind, constitution, gemini, issuer, mcp, providers};
use self::parts::{quota, store_config};
use crate::adapters::mcp::{Mcp, McpConfig};
use crate::adapters::store::Store;
use crate::config::{Config, Console};
use crate::domain::ids::InstanceId;
use crate::engine::Engine;
use crate::engine::agent::{Agents, Running};
use crate::ports::clock::SystemClock;
use crate::ports::model::Model;
use crate::surfaces::agents::DeclaredAgents;
use crate::surfaces::approvals::Approvals;
use crate::surfaces::chat::Chat;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::definitions::Directory;
use crate::surfaces::exports::Exporter;
use crate::surfaces::planning::Planning;
use crate::surfaces::runs::{AtOnce, Runs};
use crate::surfaces::sessions::Sessions;
use crate::surfaces::stats::StatsQueries;
use crate::surfaces::threads::Threads;

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
    /// The surface of planning sessions.
    pub planning: Arc<Planning>,
    /// The surface of approvals.
    pub approvals: Arc<Approvals>,
    sessions: Arc<Sessions>,
    /// The decision-log queries of analysts.
    pub decisions: DecisionQueries,
    /// Statistics of the logs.
    pub stats: StatsQueries,
    exports: Exporter,
    /// The MCP bridge.
    pub mcp: Arc<Mcp>,
    /// The store.
    pub store: Arc<Store>,
    /// The address that it will listen on, until it does.
    socket: Mutex<Option<TcpSocket>>,
    background: TaskTracker,
    stop: CancellationToken,
    stopping: Arc<AtomicBool>,
}

impl App {
    /// Builds everything for serving. MCP servers connect in the background. An unavailable database is awaited in the
    /// background as well, and `/readyz` reports it.
    ///
    /// # Errors
    /// A named file is unreadable or invalid, the database is invalid (not merely unavailable), or a model cannot be
    /// set up.
    pub async fn build(config: Config) -> anyhow::Result<Self> {
        Self::build_of(config, None, Work::Serve).await
    }

    /// As [`App::build`], for one command: invalid agents are logged and do not prevent the start.
    ///
    /// # Errors
    /// As [`App::build`], except for invalid agents.
    pub async fn build_for_command(config: Config) -> anyhow::Result<Self> {
        Self::build_of(config, None, Work::Act).await
    }

    /// As [`App::build_for_command`], with another model than the one that `config` names (`gavel eval --model-kind`).
    ///
    /// # Errors
    /// As [`App::build_for_command`].
    pub async fn build_with(config: Config, model: Arc<dyn Model>) -> anyhow::Result<Self> {
        Self::build_of(config, Some(model), Work::Act).await
    }

    /// Longer than a screen: each part is built once, after those that it needs.
    async fn build_of(config: Config, model: Option<Arc<dyn Model>>, work: Work) -> anyhow::Result<Self> {
        let reads = work.reads();
        // Before the model, which keeps handles of its metrics.
        edge::metrics();
        let model = match model {
            Some(model) => model,
            None => parts::model(&config.model)?,
        };
        let named = constitution(&config);
        let current = named.as_ref().ok().map(|named| Arc::clone(&named.definition));
        let constitution = match named {
            // Reads only compare with it.
            Err(error) if reads => {
                tracing::debug!(%error, "decisions are not compared with the current constitution");
                constitution(&Config {
                    constitution: None,
                    ..config.clone()
                })?
            }
            named => named?,
        };
        let policy = parts::policy(&config)?;
        let prices = Arc::new(parts::prices(&config)?);
        let servers = match reads {
            true => McpConfig::default(),
            false => servers::read(&config)?,
        };
        let of_planning = parts::planning_settings(&config)?;
        let files = agents::Files::read(&config, work)?;
        let instance = InstanceId::new();
        // Before the database: a start whose address another program listens on changes nothing there.
        let socket = (work == Work::Serve).then(|| bind(config.listen)).transpose();
        let socket = socket.with_context(|| cannot_listen(config.listen))?;
        let address = socket.as_ref().map(TcpSocket::local_addr).transpose()?;
        // Other machines, which a PostgreSQL database may serve too, reach it in another way.
        let serves = address
            .filter(|_| config.database_url.expose_secret().starts_with("sqlite:"))
            .map(|address| format!("http://{}", reachable(address)));
        let store_config = store_config(&config, instance, serves);
        let store = match work {
            Work::Read => Store::open_for_reading(store_config)
                .await
                .context("the database cannot be read")?,
            _ => Store::open(store_config)
                .await
                .context("the record store cannot be opened")?,
        };
        let mcp = Mcp::start(servers, servers::options(&config))?;
        let (background, stop) = (TaskTracker::new(), CancellationToken::new());
        let quota = quota(&config, &store, &background, &stop);
        let other = config.model.other.as_ref().map(|other| gemini(&config.model, other));
        let other = other.transpose()?.map(|other| Arc::new(other) as Arc<dyn Model>);
        let models = parts::by_provider(&config.model, &model, other);
        let engine = Engine {
            model,
            tools: mcp.clone(),
            recorder: store.clone(),
            clock: Arc::new(SystemClock),
            policy,
            prices,
            checks: Arc::default(),
        };
        let engine_agents = Arc::new(Agents {
            engine: engine.clone(),
            models: models.clone(),
            runs: store.clone(),
            actions: store.clone(),
            approvals_expire: config.approvals.expire_hours,
            running: Running::default(),
        });
        let directory = Directory::new(Arc::clone(&files.agents), store.clone(), mcp.clone(), models);
        let directory = Arc::new(directory);
        let at_once = AtOnce {
            waited_for: config.max_in_flight,
            background: config.runs.background,
        };
        let runs = Runs::new(engine_agents, Arc::clone(&quota), at_once);
        let agents = DeclaredAgents::new(runs.clone(), directory.clone());
        let threads = Threads::new(
            runs.clone(),
            directory.clone(),
            store.clone(),
            config.runs.threads.clone(),
        );
        let conditions = Arc::new(BundledConditions(config.clone()));
        let planning = Planning::new(runs.clone(), directory.clone(), store.clone(), conditions, of_planning);
        let planning = Arc::new(planning);
        let approvals = Approvals::new(
            runs.clone(),
            directory.clone(),
            store.clone(),
            store.clone(),
            store.clone(),
        );
        let Console {
            session_hours,
            idle_hours,
        } = config.console;
        let sessions = Sessions::new(store.clone(), Arc::new(SystemClock), session_hours, idle_hours);
        // A process without background capacity runs only what its own callers request.
        if !reads && config.runs.background > 0 {
            background.spawn(Arc::clone(&runs).sweep());
            background.spawn(parts::sweep_sessions(Arc::clone(&planning), stop.clone()));
        }
        background.spawn(files.follow(stop.clone()));
        // A process that dies has worked no longer than this uncounted.
        let every = (config.runs.lease_seconds / 3).min(Duration::from_secs(1));
        background.spawn(Arc::clone(&runs).keep_leases(every));
        let decisions = DecisionQueries::new(store.clone(), directory.clone(), current);
        let chat = Chat::new(engine, quota, constitution, config.max_in_flight);
        background.spawn(edge::fold_metrics(stop.clone()));
        let stats = StatsQueries::new(store.clone(), Arc::new(SystemClock));
        let exports = Exporter::new(store.clone());
        let stopping = Arc::new(AtomicBool::new(false));
        Ok(Self {
            config,
            chat,
            directory,
            runs,
            agents: Arc::new(agents),
            threads: Arc::new(threads),
            planning,
            approvals: Arc::new(approvals),
            sessions: Arc::new(sessions),
            decisions,
            stats,
            exports,
            mcp,
            store,
            socket: Mutex::new(socket),
            background,
            stop,
            stopping,
        })
    }

    /// Ends everything in order. New requests are refused. Work in progress is finished, or interrupted when the drain
    /// time is exhausted, and recorded either way. Then the server, the MCP servers and the store are closed.
    pub async fn shutdown(self, serving: Option<Serving>) {
        self.stopping.store(true, Ordering::Relaxed);
        // Background runs continue in the next process that claims them.
        self.runs.stop_background();
        let drained = async { tokio::join!(self.chat.drained(), self.runs.drained()) };
        if tokio::time::timeout(self.config.drain_seconds, drained).await.is_err() {
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
        if tokio::time::timeout(LAST_WORDS, self.exports.drained()).await.is_err() {
            tracing::warn!("some exports in progress are not in the audit log");
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
