//! What operators and their machines ask: alive, ready, meters.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::error::Error;
use super::exchange::Exchange;
use super::routes::Route;
use super::{headers, meters};

/// Longest wait for the store's sign of life; a probe gives up soon after.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the application knows of the parts that are not gavel's own.
pub trait Surroundings: Send + Sync {
    /// The MCP servers as they are now.
    fn servers(&self) -> Vec<McpServer>;
    /// Is the service being stopped?
    fn stopping(&self) -> bool;
    /// The meters as Prometheus text.
    fn metrics(&self) -> String;
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Check {
    /// Is it well?
    ok: bool,
    /// What is wrong, for operators; only shown to callers who authenticate.
    #[schema(required = true)]
    detail: Option<String>,
}

/// An MCP server as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct McpServer {
    /// Its name in `mcp.json`.
    pub server: String,
    /// Whether its tools can be called.
    pub state: McpState,
    /// What is wrong, for operators; only shown to callers who authenticate.
    #[schema(required = true)]
    pub detail: Option<String>,
}

/// Whether a server's tools can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpState {
    /// Yes.
    Up,
    /// It is connected, but its last calls did not get through, and most are refused for a while.
    Failing,
    /// Not yet.
    Connecting,
    /// No; it is tried again.
    Down,
    /// It is not to be started.
    Off,
}

/// A granted tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ToolUnavailable {
    /// As the constitution names it.
    tool: String,
    /// Why, for operators; only shown to callers who authenticate.
    #[schema(required = true)]
    reason: Option<String>,
}

/// `GET /readyz`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    status: Status,
    checks: Checks,
    /// The hash of the constitution in effect, as decisions carry it; only shown to callers who authenticate.
    #[schema(required = true)]
    definition_hash: Option<String>,
    mcp: Vec<McpServer>,
    tools_unavailable: Vec<ToolUnavailable>,
}

/// In short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// All is well.
    Ready,
    /// Requests are answered, some tools are away.
    Degraded,
    /// A stop is under way: send nothing new here.
    Stopping,
    /// Requests cannot be answered.
    Unready,
}

/// gavel's own parts that can fail after the start. The configuration cannot: it is read once, and a wrong one stops the
/// start. What of it does not come true stands beside: servers that are down, granted tools that nobody offers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Checks {
    store: Check,
}

impl Ready {
    fn of(
        store: Check,
        stopping: bool,
        definition_hash: &str,
        mcp: Vec<McpServer>,
        tools_unavailable: Vec<ToolUnavailable>,
    ) -> Self {
        let away =
            |server: &McpServer| matches!(server.state, McpState::Failing | McpState::Connecting | McpState::Down);
        let status = if stopping {
            Status::Stopping
        } else if !store.ok {
            Status::Unready
        } else if mcp.iter().any(away) || !tools_unavailable.is_empty() {
            Status::Degraded
        } else {
            Status::Ready
        };
        Self {
            status,
            checks: Checks { store },
            definition_hash: Some(definition_hash.to_owned()),
            mcp,
            tools_unavailable,
        }
    }

    /// Details may name hosts and paths.
    fn without_details(mut self) -> Self {
        self.checks.store.detail = None;
        self.definition_hash = None;
        self.mcp.iter_mut().for_each(|server| server.detail = None);
        self.tools_unavailable.iter_mut().for_each(|tool| tool.reason = None);
        self
    }

    fn code(&self) -> StatusCode {
        match self.status {
            Status::Ready | Status::Degraded => StatusCode::OK,
            Status::Stopping | Status::Unready => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The process answers, whatever its database does: restarting it would not help that.
pub(super) async fn live(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Live));
    exchange.finish(Ok(json(StatusCode::OK, &Live { status: "ok" })))
}

/// `GET /livez`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Live {
    /// `ok`.
    status: &'static str,
}

/// Open to probes, which have no credentials; details are for those who have.
pub(super) async fn ready(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Ready));
    let edge = &state.edge;
    let missing = edge.chat.unavailable_tools().into_iter().map(|tool| ToolUnavailable {
        tool: tool.name,
        reason: Some(tool.reason),
    });
    let servers = edge.surroundings.servers();
    let mut ready = Ready::of(
        store(&state).await,
        edge.surroundings.stopping(),
        edge.chat.definition_hash(),
        servers,
        missing.collect(),
    );
    if state.edge.auth.caller(&request).await.is_err() {
        ready = ready.without_details();
    }
    exchange.finish(Ok(json(ready.code(), &ready)))
}

async fn store(state: &State) -> Check {
    let detail = match tokio::time::timeout(PATIENCE, state.edge.decisions.ping()).await {
        Ok(Ok(())) => return Check { ok: true, detail: None },
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
    };
    Check {
        ok: false,
        detail: Some(detail),
    }
}

pub(super) async fn metrics(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Metrics));
    let mut response = HttpResponse::Ok();
    response.insert_header((
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    ));
    meters::tools_missing(state.edge.chat.unavailable_tools().len());
    // Writing the page takes some milliseconds, in which this thread would serve nobody.
    let surroundings = Arc::clone(&state.edge.surroundings);
    let page = tokio::task::spawn_blocking(move || surroundings.metrics()).await;
    exchange.finish(page.map(|page| response.body(page)).map_err(|error| {
        tracing::error!(%error, "the metrics could not be written");
        Error::Internal
    }))
}

fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let text = serde_json::to_string(value).unwrap_or_else(|error| unreachable!("a report prints as JSON: {error}"));
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, headers::JSON));
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    response.body(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ok: bool) -> Check {
        Check { ok, detail: None }
    }

    /// DESIGN.md section 9: an MCP server that is down makes it degraded, not unready.
    #[test]
    fn only_its_own_parts_make_it_unready() {
        let server = |state| McpServer {
            server: "tasks".into(),
            state,
            detail: Some("secret.host".into()),
        };
        let told = |ready: &Ready| (ready.status, ready.code().as_u16());
        let degraded = Ready::of(check(true), false, "c0ffee", vec![server(McpState::Down)], Vec::new());
        assert_eq!(told(&degraded), (Status::Degraded, 200));
        assert_eq!(
            told(&Ready::of(check(false), false, "", Vec::new(), Vec::new())),
            (Status::Unready, 503)
        );
        assert_eq!(
            told(&Ready::of(check(true), true, "", Vec::new(), Vec::new())),
            (Status::Stopping, 503)
        );
        let well = vec![server(McpState::Up), server(McpState::Off)];
        assert_eq!(
            told(&Ready::of(check(true), false, "", well, Vec::new())),
            (Status::Ready, 200)
        );
        let shown = serde_json::to_string(&degraded.without_details()).unwrap();
        assert!(shown.contains("tasks"), "{shown}");
        assert!(!shown.contains("secret.host") && !shown.contains("c0ffee"), "{shown}");
    }
}
