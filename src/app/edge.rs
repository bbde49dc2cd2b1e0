//! The edge's state: who may ask, how everything is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::App;
use crate::adapters::mcp::Mcp;
use crate::config::{self, JwtKeys};
use crate::http::Edge;
use crate::http::caller::{Auth, ServiceKey, SharedSecret, TokenKeys, Tokens};
use crate::http::health::Surroundings;
use crate::surfaces::caller::{Caller, Identity};

pub(super) fn edge(app: &App) -> anyhow::Result<Edge> {
    let surroundings = Around {
        mcp: app.mcp.clone(),
        stopping: app.stopping.clone(),
        metrics: metrics(),
    };
    Ok(Edge {
        chat: app.chat.clone(),
        decisions: app.decisions.clone(),
        auth: auth(&app.config.auth)?,
        surroundings: Arc::new(surroundings),
    })
}

fn auth(config: &config::Auth) -> anyhow::Result<Auth> {
    Ok(match config {
        config::Auth::None => Auth::none(),
        config::Auth::ApiKeys(keys) => Auth::ApiKeys(keys.iter().map(service).collect()),
        config::Auth::Jwt(jwt) => {
            let keys: Arc<dyn TokenKeys> = match &jwt.keys {
                JwtKeys::Secret(secret) => Arc::new(SharedSecret(secret.expose_secret().as_bytes().to_vec())),
                JwtKeys::Jwks(_) => anyhow::bail!("auth.jwt.jwks_url is not wired yet"),
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
        identity: Identity::Service(Arc::from(key.name.as_str())),
        roles: Arc::new(key.roles.clone()),
    };
    ServiceKey {
        sha256: key.sha256,
        caller,
    }
}

/// One recorder for the process, however many apps a test builds. Made before anything is counted.
pub(super) fn metrics() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let install = || {
        PrometheusBuilder::new()
            .install_recorder()
            .map_err(|error| tracing::error!(%error, "metrics are not recorded"))
            .ok()
    };
    HANDLE.get_or_init(install).clone()
}

struct Around {
    mcp: Arc<Mcp>,
    stopping: Arc<AtomicBool>,
    metrics: Option<PrometheusHandle>,
}

impl Surroundings for Around {
    fn servers(&self) -> Value {
        serde_json::to_value(self.mcp.status()).unwrap_or_default()
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn metrics(&self) -> String {
        self.metrics.as_ref().map(PrometheusHandle::render).unwrap_or_default()
    }
}
