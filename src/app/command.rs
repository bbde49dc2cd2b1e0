//! The service that one command starts for itself: the API on a free loopback port, for a key that only this process
//! has. It works on what the command requests and takes up nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::{App, Serving};
use crate::adapters::store::{Process, ReadOnly};
use crate::api::agents::AgentInfo;
use crate::config::{Config, ModelConfig, Planning, Policy, PriceSettings, Provider, Runs};
use crate::domain::ids::{ProjectId, TenantId, UserId};
use crate::http::caller::ServiceKey;
use crate::ports::tools::Tools;
use crate::surfaces::caller::{APPROVER, Caller, Identity};

/// Random bytes of a key: 256 bits cannot be guessed, so storing its plain SHA-256 is safe.
const KEY_BYTES: usize = 32;
/// How long to wait for an agent's MCP servers.
const SERVERS: Duration = Duration::from_secs(15);

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It serves. An error in an explicitly named directory of agents prevents the start: the operator wants all of them.
    Serve,
    /// It acts: requests a decision, executes a run, answers.
    Act,
    /// It reads an existing database, starts no MCP server and changes nothing.
    Read,
    /// As `Read`, but the audit log has what it took.
    Export,
}

impl Work {
    /// Whether only records are needed.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Export)
    }
}

/// The service of one command.
pub(crate) struct OwnService {
    app: App,
    serving: Serving,
    key: SecretString,
    tenant: TenantId,
}

impl OwnService {
    /// Starts the service. Its only caller is the operator, who acts for `user`, or for every user of the tenant.
    ///
    /// # Errors
    /// As [`App::build_for_command`]; to read, the database is missing or lacks migrations.
    pub(crate) async fn start(
        config: Config,
        work: Work,
        tenant: TenantId,
        user: Option<&UserId>,
    ) -> anyhow::Result<Self> {
        if work == Work::Export {
            // What opens a database for writing would create a missing one.
            running_process(&config).await?;
        }
        let config = match work.reads() {
            true => records_alone(config),
            false => without_background(config),
        };
        let app = App::build_of(config, None, work).await?;
        Self::serve(app, tenant, user).await
    }

    /// As [`OwnService::start`], with the parts of `app`.
    ///
    /// # Errors
    /// gavel cannot listen on a loopback port.
    pub(crate) async fn serve(app: App, tenant: TenantId, user: Option<&UserId>) -> anyhow::Result<Self> {
        let started = (|| {
            let key = fresh_key()?;
            let serving = app.serve_key(ServiceKey {
                name: Arc::from("command"),
                sha256: Sha256::digest(key.expose_secret()).into(),
                caller: operator(tenant.clone(), user),
            })?;
            anyhow::Ok((key, serving))
        })();
        match started {
            Ok((key, serving)) => Ok(Self {
                app,
                serving,
                key,
                tenant,
            }),
            Err(error) => {
                app.shutdown(None).await;
                Err(error)
            }
        }
    }

    /// The service's URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.serving.address)
    }

    /// The only key that the service answers.
    pub(crate) fn key(&self) -> &SecretString {
        &self.key
    }

    /// Waits for the MCP servers of an agent and of all agents that it calls; at most 15 s.
    ///
    /// # Errors
    /// There is no such project; the store is unavailable.
    pub(crate) async fn connect_servers_of(&self, project: &ProjectId, agent: &str) -> anyhow::Result<()> {
        let agents = self.app.directory.list(&self.tenant, project).await?;
        let tools = tools(&agents, agent);
        self.app.mcp.ready(&tools, Instant::now() + SERVERS).await;
        Ok(())
    }

    /// The gavel that uses the database now: a server, or a command that acts. This one counts if it acts itself.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) async fn running_process(&self) -> anyhow::Result<Option<Process>> {
        Ok(self.app.store.running_process().await?)
    }

    /// Its parts.
    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    /// Ends the service. A run in progress is completed, unless `detach` is set: then another gavel continues it.
    pub(crate) async fn close(self, detach: bool) {
        if detach {
            self.app.runs.cut_short();
        }
        self.app.shutdown(Some(self.serving)).await;
    }
}

/// The caller when gavel itself is the client. A user of the machine who may start gavel with this configuration may see
/// and do what it allows, and resolve approvals; on behalf of a user, what that user may.
fn operator(tenant: TenantId, user: Option<&UserId>) -> Caller {
    let roles = match user {
        None => [APPROVER.to_owned()].into(),
        Some(_) => Default::default(),
    };
    Caller {
        tenant,
        identity: Identity::Service(Arc::from(account())),
        roles: Arc::new(roles),
    }
}

/// The records name the system account. They use its number, since an environment can set any name.
fn account() -> String {
    #[cfg(unix)]
    return format!("gavel-cli:uid-{}", rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    "gavel-cli".to_owned()
}

/// A new API key, from the system's random bytes.
///
/// # Errors
/// The system provides none.
pub(crate) fn fresh_key() -> anyhow::Result<SecretString> {
    let mut bytes = [0; KEY_BYTES];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the system provides no random bytes"))?;
    let text = format!("gavel_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
    Ok(SecretString::from(text))
}

/// As [`OwnService::running_process`], before a service starts.
///
/// # Errors
/// The database cannot be read.
pub(crate) async fn running_process(config: &Config) -> anyhow::Result<Option<Process>> {
    let record = ReadOnly::open(config.database_url.expose_secret()).await;
    let record = record.context("the database cannot be read")?;
    let process = record.running_process().await;
    record.close().await;
    Ok(process?)
}

/// Without what only work on a message or a run needs, and what may therefore be missing or invalid.
fn records_alone(config: Config) -> Config {
    Config {
        policy: Policy { file: None },
        prices: PriceSettings { file: None },
        planning: Planning {
            templates: None,
            ..config.planning.clone()
        },
        model: ModelConfig {
            provider: Provider::Demo { by_name: true },
            other: None,
            ..config.model.clone()
        },
        ..without_background(config)
    }
}

/// A process without background capacity takes up no run of other processes.
fn without_background(config: Config) -> Config {
    Config {
        runs: Runs {
            background: 0,
            ..config.runs
        },
        ..config
    }
}

/// The tools of an agent and of all agents that it calls; each agent is visited once.
fn tools(agents: &[AgentInfo], name: &str) -> Vec<String> {
    let (mut seen, mut open, mut tools) = (BTreeSet::new(), vec![name], Vec::new());
    while let Some(next) = open.pop() {
        if seen.insert(next)
            && let Some(agent) = agents.iter().find(|agent| agent.id == next)
        {
            tools.extend(agent.tools.iter().cloned());
            open.extend(agent.calls.iter().map(String::as_str));
        }
    }
    tools
}
