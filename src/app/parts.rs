//! The parts of the service that need no other part: each built from the configuration alone.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gavel_reading::ReadError;
use secrecy::ExposeSecret;
use tokio::net::TcpSocket;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::servers;
use crate::adapters::demo::Demo;
use crate::adapters::gemini::{Endpoint, Gemini, GeminiConfig, Timeouts};
use crate::adapters::jwks::Jwks;
use crate::adapters::mcp::Mcp;
use crate::adapters::quota::{LocalQuota, SharedQuota};
use crate::adapters::store::{AtStart, AuditSecrets, Store, StoreConfig};
use crate::config::{Auth, Config, FileError, Jwt, JwtKeys, ModelConfig, Provider};
use crate::domain::budget::SessionLimits;
use crate::domain::definition::Constitution;
use crate::domain::ids::InstanceId;
use crate::domain::policy::Policy;
use crate::domain::prices::Prices;
use crate::domain::repository::AllowedRepositories;
use crate::engine::agent::Models;
use crate::engine::gate::failures;
use crate::engine::strategy::plan::TaskRules;
use crate::ports::model::Model;
use crate::ports::quota::Quota;
use crate::surfaces;
use crate::surfaces::planning::{
    Planning, PlanningSettings, PlanningTemplates, Repositories, RepositoryPattern, TemplateFile,
};

/// The MCP bridge alone. The servers connect in the background.
///
/// # Errors
/// The `mcp.json` is invalid.
pub fn mcp(config: &Config) -> anyhow::Result<Arc<Mcp>> {
    Ok(Mcp::start(servers::read(config)?, servers::options(config))?)
}

/// Gemini alone through one of its providers.
///
/// # Errors
/// Its settings or credentials are invalid.
pub fn gemini(config: &ModelConfig, endpoint: &Endpoint) -> anyhow::Result<Gemini> {
    let timeouts = Timeouts {
        connect: config.timeouts.connect_seconds,
        first_byte: config.timeouts.first_byte_seconds,
        idle: config.timeouts.idle_seconds,
        ..Timeouts::default()
    };
    Ok(Gemini::new(GeminiConfig {
        timeouts,
        thinking_level: config.thinking_level,
        ..GeminiConfig::new(endpoint.clone(), config.name.clone())
    })?)
}

/// Which providers definitions may name, to determine which agents can run. The models are stand-ins and are never
/// called, because real ones may need credentials.
pub fn providers(config: &ModelConfig) -> Models {
    let stand_in: Arc<dyn Model> = Arc::new(Demo);
    by_provider(config, &stand_in, config.other.as_ref().map(|_| Arc::clone(&stand_in)))
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
pub(super) const NOT_SENT: u32 = 128 * 1024;

/// Takes the address, without listening yet.
///
/// # Errors
/// The address is in use or unavailable.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit this option.
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(NOT_SENT)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Listens with a backlog for bursts: a connection that finds the backlog full retries only after a second.
///
/// # Errors
/// Another program began to listen there in the meantime.
pub(super) fn listen(socket: TcpSocket) -> std::io::Result<TcpListener> {
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
        Some(path) => file("the constitution", path)?,
    };
    Constitution::from_markdown(&text, &place).map_err(|errors| FileError::new("the constitution is invalid", &errors))
}

/// The text of a file that a setting names, and its place.
fn file(what: &str, path: &Path) -> Result<(String, String), FileError> {
    let place = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Ok((text, place)),
        Err(error) => Err(FileError(format!("{what} {place} cannot be read: {error}"))),
    }
}

/// The keys of the audit log, as the store expects them.
pub(crate) fn audit_secrets(config: &Config) -> AuditSecrets {
    AuditSecrets {
        current: config.audit.key.clone(),
        old: config.audit.old_keys.clone().unwrap_or_default(),
    }
}

pub(super) fn store_config(config: &Config, instance: InstanceId, serves: Option<String>) -> StoreConfig {
    StoreConfig {
        content: config.records.0.clone(),
        records_kept: config.records.1,
        at_start: AtStart::Background,
        serves,
        run_lease: config.runs.lease_seconds,
        runs_kept: config.runs.keep_days,
        sessions: SessionLimits::new(config.planning.sessions, config.planning.sessions_per_user),
        audit: audit_secrets(config),
        ..StoreConfig::new(config.database_url.expose_secret(), instance)
    }
}

/// Counted by this process alone; where replicas may share a database, together with them.
pub(super) fn quota(
    config: &Config,
    store: &Store,
    background: &TaskTracker,
    stop: &CancellationToken,
) -> Arc<dyn Quota> {
    let local = Arc::new(LocalQuota::new(config.rate_limit.per_minute, config.rate_limit.burst));
    let swept = local.clone();
    background.spawn(every(LocalQuota::SWEEP, stop.clone(), move || {
        swept.sweep();
        std::future::ready(())
    }));
    let Some(buckets) = store.buckets() else {
        return local;
    };
    let shared = Arc::new(SharedQuota::new(local, buckets));
    background.spawn(shared.clone().keep(stop.clone()));
    shared
}

/// Does this at every tick, until it is stopped. A late tick delays the next ones.
pub(super) async fn every<F: Future<Output = ()>>(
    period: Duration,
    stop: CancellationToken,
    mut work: impl FnMut() -> F,
) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => work().await,
            () = stop.cancelled() => return,
        }
    }
}

/// Builds the default model.
pub(super) fn model(config: &ModelConfig) -> anyhow::Result<Arc<dyn Model>> {
    match &config.provider {
        Provider::Demo { .. } => Ok(Arc::new(Demo)),
        Provider::Gemini(endpoint) => Ok(Arc::new(gemini(config, endpoint)?)),
    }
}

/// The models that definitions may select by provider: the default, and the other configured one.
pub(super) fn by_provider(config: &ModelConfig, default: &Arc<dyn Model>, other: Option<Arc<dyn Model>>) -> Models {
    let mut models = Models::default();
    let mut add = |endpoint: &Endpoint, model| match endpoint {
        Endpoint::Developer { .. } => models.gemini = Some(model),
        Endpoint::Vertex { .. } | Endpoint::VertexExpress { .. } => models.vertex = Some(model),
    };
    if let (Some(endpoint), Some(model)) = (&config.other, other) {
        add(endpoint, model);
    }
    match &config.provider {
        Provider::Demo { .. } => models.one_for_all = true,
        Provider::Gemini(endpoint) => add(endpoint, Arc::clone(default)),
    }
    models
}

/// The policy of a configuration, with passing tests; without a file, a policy without rules.
///
/// # Errors
/// It cannot be read; or all errors in it, or all failed tests.
pub fn policy(config: &Config) -> Result<Arc<Policy>, FileError> {
    let policy = Arc::new(read_policy(config)?);
    let failures = failures(&policy, surfaces::floor);
    if failures.is_empty() {
        Ok(policy)
    } else {
        Err(FileError::new("the policy is invalid", &failures))
    }
}

/// As [`policy`], without running its tests.
///
/// # Errors
/// It cannot be read; or all errors in it.
pub fn read_policy(config: &Config) -> Result<Policy, FileError> {
    let policy = match &config.policy.file {
        None => Policy::default(),
        Some(path) => {
            let (text, place) = file("the policy", path)?;
            Policy::read(&text, &place).map_err(|errors| FileError::new("the policy is invalid", &errors))?
        }
    };
    let repositories = AllowedRepositories(allowed_repositories(config));
    Ok(Policy { repositories, ..policy })
}

/// What models cost: the named table, and of the built-in one what that does not have.
///
/// # Errors
/// It cannot be read; or all errors in it.
pub fn prices(config: &Config) -> Result<Prices, FileError> {
    let invalid = |errors: Vec<ReadError>| FileError::new("the prices are invalid", &errors);
    let built_in = Prices::read(Prices::BUILT_IN, "prices.toml (built in)").map_err(invalid)?;
    let Some(path) = &config.prices.file else {
        return Ok(built_in);
    };
    let (text, place) = file("the prices", path)?;
    Ok(Prices::read(&text, &place).map_err(invalid)?.or(built_in))
}

/// Interval between two searches for sessions past their deadline.
const SWEEP: Duration = Duration::from_secs(2);

/// The repositories that calls may name. `None`: all, without authentication and without a list, since the operator is the
/// only user.
fn allowed_repositories(config: &Config) -> Option<Vec<RepositoryPattern>> {
    let repositories = config.planning.repositories.as_deref().unwrap_or_default();
    let is_open = repositories.is_empty() && matches!(config.auth, Auth::None);
    (!is_open).then(|| repositories.to_owned())
}

/// # Errors
/// A template cannot be read; or all errors in the templates.
pub(super) fn planning_settings(config: &Config) -> Result<PlanningSettings, FileError> {
    let templates = match &config.planning.templates {
        Some(directory) => templates_of(directory)?,
        None => PlanningTemplates::built_in(),
    };
    Ok(PlanningSettings {
        repositories: Repositories::new(config.github.url.clone(), allowed_repositories(config)),
        sessions: config.planning.rules.clone(),
        rules: TaskRules {
            limits: config.planning.limits.clone(),
            templates: templates.phases.clone(),
        },
        templates,
    })
}

/// The templates with the files of a directory in place of built-in ones.
fn templates_of(directory: &Path) -> Result<PlanningTemplates, FileError> {
    let unreadable = |path: &Path, error: std::io::Error| {
        let path = path.display();
        FileError(format!(
            "the templates of planning (planning.templates) cannot be read: {path}: {error}"
        ))
    };
    let entries = fs::read_dir(directory).map_err(|error| unreadable(directory, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(directory, error))?.path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = path.display().to_string();
        files.push(TemplateFile { name, place, text });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    PlanningTemplates::of(&files).map_err(|errors| FileError::new("the templates of planning are invalid", &errors))
}

pub(super) async fn sweep_sessions(planning: Arc<Planning>, stop: CancellationToken) {
    let sweep = || async {
        let handled = planning.sweep().await;
        if handled > 0 {
            tracing::info!(
                handled,
                "planning sessions were moved on: a deadline passed, or a run was lost"
            );
        }
    };
    every(SWEEP, stop, sweep).await;
}

#[cfg(test)]
mod planning_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A directory replaces templates one by one; what is no template in it is left alone, and an error stops the start.
    #[test]
    fn templates_come_from_a_directory_and_an_invalid_one_stops_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("act.md", "${notice} Now.");
        write("notes.txt", "${anything}");
        let own = templates_of(directory.path()).unwrap();
        assert_eq!(own.phases.act, "${notice} Now.");
        assert_eq!(own.plan, PlanningTemplates::built_in().plan);
        write("reason.md", "Think.\n${goal}");
        let FileError(message) = templates_of(directory.path()).unwrap_err();
        assert!(
            message.contains("reason.md:2: template: found ${goal}") && message.contains("found no ${time_left}"),
            "{message}"
        );
        let FileError(message) = templates_of(&directory.path().join("none")).unwrap_err();
        assert!(message.contains("planning.templates"), "{message}");
    }
}
