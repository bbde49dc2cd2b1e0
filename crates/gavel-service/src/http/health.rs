//! Health endpoints for operators and probes: liveness, readiness, metrics.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use super::Edge;
use super::answer::{Json, Reply};
use super::error::{Code, Error};
use super::request::{Ctx, Open};
use crate::http::routes::operations;
use crate::ports::metrics::TOOLS_MISSING;

operations! {
    isAlive = live: [];
    isReady = ready: [];
    getMetrics = metrics: [Internal];
}

/// Longest wait for the store to respond; probes time out soon after.
const PATIENCE: Duration = Duration::from_secs(2);

/// State of the parts outside the edge.
pub trait Surroundings: Send + Sync {
    /// The current state of the MCP servers.
    fn servers(&self) -> Vec<McpServer>;
    /// Whether the service is stopping.
    fn stopping(&self) -> bool;
    /// The metrics as Prometheus text.
    fn metrics(&self) -> String;
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Check {
    /// Whether the check passed.
    ok: bool,
    /// The failure, for operators; only shown to authenticated callers.
    #[schema(required = true)]
    detail: Option<String>,
}

/// The current state of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct McpServer {
    /// Its name in `mcp.json`; only shown to authenticated callers.
    #[schema(required = true)]
    pub server: Option<String>,
    /// Whether its tools can be called.
    pub state: McpState,
    /// The failure, or the sandbox in which a connected server runs commands (`bwrap`, `landlock`; `host` is none), for
    /// operators; only shown to authenticated callers.
    #[schema(required = true)]
    pub detail: Option<String>,
}

/// Whether a server's tools can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpState {
    /// Its tools can be called.
    Up,
    /// It is connected, but its last calls failed, and most calls are refused for a while.
    Failing,
    /// It is connecting.
    Connecting,
    /// It is not connected; gavel keeps trying.
    Down,
    /// It is disabled.
    Off,
}

/// A tool of the constitution that is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ToolUnavailable {
    /// The name of the tool in the constitution; only shown to authenticated callers.
    #[schema(required = true)]
    tool: Option<String>,
    /// The reason, for operators; only shown to authenticated callers.
    #[schema(required = true)]
    reason: Option<String>,
}

/// `GET /readyz`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    status: Status,
    checks: Checks,
    /// The hash of the constitution in effect, as in decisions; only shown to authenticated callers.
    #[schema(required = true)]
    definition_hash: Option<String>,
    mcp: Vec<McpServer>,
    tools_unavailable: Vec<ToolUnavailable>,
}

/// The overall state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// All parts work.
    Ready,
    /// Requests are answered, but some tools are unavailable.
    Degraded,
    /// The service is stopping: send no new requests.
    Stopping,
    /// Requests cannot be answered.
    Unready,
}

/// Parts of gavel that can fail after the start. The configuration cannot: it is read once, and an invalid one prevents
/// the start. Failures of servers and missing tools are reported separately.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Checks {
    store: Check,
}

impl Ready {
    fn with_status(mut self, stopping: bool) -> Self {
        use McpState::{Connecting, Down, Failing};
        let away = |server: &McpServer| matches!(server.state, Failing | Connecting | Down);
        self.status = if stopping {
            Status::Stopping
        } else if !self.checks.store.ok {
            Status::Unready
        } else if self.mcp.iter().any(away) || !self.tools_unavailable.is_empty() {
            Status::Degraded
        } else {
            Status::Ready
        };
        self
    }

    /// The states and their number alone: names, hosts and paths are for callers.
    fn without_details(mut self) -> Self {
        self.checks.store.detail = None;
        self.definition_hash = None;
        for server in &mut self.mcp {
            (server.server, server.detail) = (None, None);
        }
        for tool in &mut self.tools_unavailable {
            (tool.tool, tool.reason) = (None, None);
        }
        self
    }

    fn code(&self) -> StatusCode {
        match self.status {
            Status::Ready | Status::Degraded => StatusCode::OK,
            Status::Stopping | Status::Unready => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Checks whether the process responds.
///
/// Does not depend on the database: a restart would not repair it.
#[utoipa::path(
    get,
    path = "/livez",
    responses((status = 200, description = "The response.", body = Live, example = json!({"status": "ok"})))
)]
pub(super) async fn live(_: Open) -> Result<Json<Live>, Error> {
    Ok(Json(Live { status: "ok" }))
}

/// `GET /livez`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Live {
    /// `ok`.
    status: &'static str,
}

/// Checks whether gavel can decide.
///
/// Reports on gavel's own database, and names the constitution in effect; an invalid configuration prevents the start.
/// An MCP server that is down makes it `degraded`, not unready. Names and details are shown only to authenticated
/// callers.
#[utoipa::path(
    get,
    path = "/readyz",
    responses(
        (status = 200, description = "The response."),
        (status = 503, description = "Unready or stopping: send no requests here."),
    )
)]
pub(super) async fn ready(edge: Open, caller: Result<Ctx, Error>) -> Result<Reply<Ready>, Error> {
    let missing = edge.chat.unavailable_tools().into_iter().map(|tool| ToolUnavailable {
        tool: Some(tool.name),
        reason: Some(tool.reason),
    });
    let ready = Ready {
        status: Status::Ready,
        checks: Checks {
            store: store(&edge).await,
        },
        definition_hash: Some(edge.chat.definition_hash().to_owned()),
        mcp: edge.surroundings.servers(),
        tools_unavailable: missing.collect(),
    };
    let mut ready = ready.with_status(edge.surroundings.stopping());
    if caller.is_err() {
        ready = ready.without_details();
    }
    Ok(Reply::new(ready.code(), ready))
}

async fn store(edge: &Edge) -> Check {
    let detail = match tokio::time::timeout(PATIENCE, edge.decisions.ping()).await {
        Ok(Ok(())) => return Check { ok: true, detail: None },
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no response within {} s", PATIENCE.as_secs()),
    };
    Check {
        ok: false,
        detail: Some(detail),
    }
}

/// Returns metrics for Prometheus.
///
/// Prometheus text format, version 0.0.4.
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, description = "The text.", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(edge: Open) -> Result<HttpResponse, Error> {
    #[expect(clippy::cast_precision_loss, reason = "a few names")]
    TOOLS_MISSING.get().set(edge.chat.unavailable_tools().len() as f64);
    // Rendering takes some milliseconds, so it runs off the worker thread.
    let surroundings = Arc::clone(&edge.surroundings);
    let page = tokio::task::spawn_blocking(move || surroundings.metrics()).await;
    let page = page.map_err(|error| {
        tracing::error!(%error, "the metrics could not be rendered");
        Code::Internal
    })?;
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, media))
        .body(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ok: bool) -> Check {
        Check { ok, detail: None }
    }

    /// An MCP server that is down makes the service degraded, not unready.
    #[test]
    fn only_its_own_parts_make_it_unready() {
        let server = |state| McpServer {
            server: Some("tasks".into()),
            state,
            detail: Some("secret.host".into()),
        };
        let reported = |ready: &Ready| (ready.status, ready.code().as_u16());
        let missing = ToolUnavailable {
            tool: Some("internal_tool".into()),
            reason: Some("secret.host".into()),
        };
        let of = |ok, stopping, mcp, tools_unavailable| {
            let ready = Ready {
                status: Status::Ready,
                checks: Checks { store: check(ok) },
                definition_hash: Some("c0ffee".into()),
                mcp,
                tools_unavailable,
            };
            ready.with_status(stopping)
        };
        let degraded = of(true, false, vec![server(McpState::Down)], vec![missing]);
        assert_eq!(reported(&degraded), (Status::Degraded, 200));
        let unready = of(false, false, Vec::new(), Vec::new());
        assert_eq!(reported(&unready), (Status::Unready, 503));
        let stopping = of(true, true, Vec::new(), Vec::new());
        assert_eq!(reported(&stopping), (Status::Stopping, 503));
        let well = of(
            true,
            false,
            vec![server(McpState::Up), server(McpState::Off)],
            Vec::new(),
        );
        assert_eq!(reported(&well), (Status::Ready, 200));
        let shown = serde_json::to_string(&degraded.without_details()).unwrap();
        assert!(shown.contains(r#""state":"down""#), "{shown}");
        for hidden in ["tasks", "internal_tool", "secret.host", "c0ffee"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
}
