//! The parts of the service that need no other part: each built from the configuration alone.

use secrecy::ExposeSecret;
use std::convert::Infallible;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{model, servers};
use crate::adapters::demo::Demo;
use crate::adapters::gemini::Gemini;
use crate::adapters::jwks::Jwks;
use crate::adapters::mcp::Mcp;
use crate::adapters::quota::{LeasedQuota, LocalQuota};
use crate::adapters::store::Store;
use crate::adapters::store::{AtStart, AuditSecrets, ContentKey, ContentMode, StoreConfig};
use crate::config::{Auth, Config, Content, FileError, Jwt, JwtKeys, ModelConfig, Provider};
use crate::domain::budget::SessionLimits;
use crate::domain::definition::Constitution;
use crate::domain::ids::InstanceId;
use crate::engine::agent::Models;
use crate::ports::model::Model;
use crate::ports::quota::Quota;

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
        old: config.audit.old_keys.clone().unwrap_or_default(),
    }
}

pub(super) fn store_config(config: &Config, instance: InstanceId, serves: Option<String>) -> StoreConfig {
    StoreConfig {
        content: match &config.records {
            Content::Full => ContentMode::Full,
            Content::Hash(key) => ContentMode::Hash(ContentKey::new(key.expose_secret().as_bytes())),
            Content::None => ContentMode::None,
        },
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
    background.spawn(sweep_quota(local.clone(), stop.clone()));
    let Some(buckets) = store.buckets() else {
        return local;
    };
    let leased = Arc::new(LeasedQuota::new(local, buckets, background.clone()));
    background.spawn(leased.clone().keep(stop.clone()));
    leased
}

pub(super) async fn sweep_quota(quota: Arc<LocalQuota>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LocalQuota::SWEEP);
    loop {
        tokio::select! {
            _ = ticks.tick() => quota.sweep(),
            () = stop.cancelled() => return,
        }
    }
}
