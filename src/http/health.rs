//! `/livez`, `/readyz`, `/metrics`: for machines.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::{Edge, request};

/// What the application knows of the parts that are not gavel's own.
pub trait Surroundings: Send + Sync {
    /// The MCP servers, each as a JSON object. One that is down is degraded, not unready.
    fn servers(&self) -> Value;
    /// Is the service being stopped?
    fn stopping(&self) -> bool;
    /// Prometheus text.
    fn metrics(&self) -> String;
}

/// Is the process there?
#[utoipa::path(get, path = "/livez", tag = "health", security(()), responses((status = 200, description = "Alive", body = String)))]
pub(super) async fn livez() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body("alive\n")
}

/// Can it decide? Speaks of gavel's own database and configuration.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "Ready", body = super::docs::Readiness),
    (status = 503, description = "Not ready: the database is away, or the service is stopping", body = super::docs::Readiness),
))]
pub(super) async fn readyz(request: HttpRequest, edge: Data<Edge>) -> HttpResponse {
    let store = edge.decisions.ping().await;
    let stopping = edge.surroundings.stopping();
    let unavailable: Vec<_> = edge
        .chat
        .unavailable_tools()
        .into_iter()
        .map(|tool| json!({"tool": tool.name, "reason": tool.reason}))
        .collect();
    let ready = store.is_ok() && !stopping;
    let body = json!({
        "status": if !ready { "unready" } else if unavailable.is_empty() { "ready" } else { "degraded" },
        "store": store.map_or_else(|error| error.to_string(), |()| "ok".to_owned()),
        "stopping": stopping,
        "mcp": edge.surroundings.servers(),
        "tools_unavailable": unavailable,
    });
    let mut builder = if ready {
        HttpResponse::Ok()
    } else {
        HttpResponse::ServiceUnavailable()
    };
    builder.insert_header((super::REQUEST_ID, request::request_id(request.headers()).as_ref()));
    builder.content_type("application/json").body(body.to_string())
}

/// Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "health", security(()), responses((status = 200, description = "Prometheus text format", body = String)))]
pub(super) async fn metrics(edge: Data<Edge>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(edge.surroundings.metrics())
}
