//! What operators and their machines ask: alive, ready, meters.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::BoxFuture;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::exchange::Exchange;
use super::headers;
use super::routes::Route;

/// Longest wait for the readiness report; a probe gives up soon after.
const PATIENCE: Duration = Duration::from_secs(2);

/// Knows how the parts are.
pub trait Readiness: Send + Sync {
    /// Looks at them now.
    fn report(&self) -> BoxFuture<'_, Report>;
}

/// How the parts are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Is a stop under way? Then nothing new should be sent here.
    pub draining: bool,
    /// The record store.
    pub store: Check,
    /// Constitution, configuration.
    pub configuration: Check,
    /// Each MCP server.
    pub mcp: Vec<McpServer>,
    /// Granted tools that no server offers now.
    pub tools_unavailable: Vec<ToolUnavailable>,
}

/// One check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Check {
    /// Is it well?
    pub ok: bool,
    /// What is wrong, for operators; only shown to callers who authenticate.
    #[schema(required = true)]
    pub detail: Option<String>,
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
    Connected,
    /// Not yet.
    Connecting,
    /// No.
    Down,
}

/// A granted tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolUnavailable {
    /// As the constitution names it.
    pub tool: String,
    /// Why, for operators; only shown to callers who authenticate.
    #[schema(required = true)]
    pub reason: Option<String>,
}

/// `GET /readyz`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    status: Status,
    checks: Checks,
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
    /// A stop is under way.
    Draining,
    /// Requests cannot be answered.
    Unavailable,
}

/// gavel's own parts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Checks {
    store: Check,
    configuration: Check,
}

impl Ready {
    fn of(report: Report) -> Self {
        let down = report.mcp.iter().any(|server| server.state != McpState::Connected);
        let status = if report.draining {
            Status::Draining
        } else if !report.store.ok || !report.configuration.ok {
            Status::Unavailable
        } else if down || !report.tools_unavailable.is_empty() {
            Status::Degraded
        } else {
            Status::Ready
        };
        let checks = Checks { store: report.store, configuration: report.configuration };
        Self { status, checks, mcp: report.mcp, tools_unavailable: report.tools_unavailable }
    }

    /// Details may name hosts and paths.
    fn without_details(mut self) -> Self {
        self.checks.store.detail = None;
        self.checks.configuration.detail = None;
        self.mcp.iter_mut().for_each(|server| server.detail = None);
        self.tools_unavailable.iter_mut().for_each(|tool| tool.reason = None);
        self
    }

    fn code(&self) -> StatusCode {
        match self.status {
            Status::Ready | Status::Degraded => StatusCode::OK,
            Status::Draining | Status::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
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
    let report = tokio::time::timeout(PATIENCE, state.edge.readiness.report()).await;
    let report = report.unwrap_or_else(|_| Report {
        store: Check { ok: false, detail: Some("no answer within 2 s".to_owned()) },
        ..Report::default()
    });
    let mut ready = Ready::of(report);
    if state.edge.auth.caller(&request).await.is_err() {
        ready = ready.without_details();
    }
    exchange.finish(Ok(json(ready.code(), &ready)))
}

pub(super) async fn metrics(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Metrics));
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8")));
    exchange.finish(Ok(response.body((state.edge.metrics)())))
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

    fn well() -> Report {
        let ok = Check { ok: true, detail: None };
        Report { store: ok.clone(), configuration: ok, ..Report::default() }
    }

    /// DESIGN.md section 9: an MCP server that is down makes it degraded, not unready.
    #[test]
    fn only_its_own_parts_make_it_unready() {
        let down = McpServer { server: "tasks".into(), state: McpState::Down, detail: Some("secret.host".into()) };
        let degraded = Ready::of(Report { mcp: vec![down], ..well() });
        assert_eq!((degraded.status, degraded.code()), (Status::Degraded, StatusCode::OK));
        let away = Ready::of(Report { store: Check::default(), ..well() });
        assert_eq!((away.status, away.code()), (Status::Unavailable, StatusCode::SERVICE_UNAVAILABLE));
        let draining = Ready::of(Report { draining: true, ..well() });
        assert_eq!(draining.code(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(Ready::of(well()).status, Status::Ready);
        let shown = serde_json::to_string(&degraded.without_details()).unwrap();
        assert!(shown.contains("tasks") && !shown.contains("secret.host"), "{shown}");
    }
}
