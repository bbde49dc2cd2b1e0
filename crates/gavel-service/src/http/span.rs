//! The span of one request, with OpenTelemetry's names for HTTP servers.

use actix_web::HttpRequest;
use actix_web::http::Version;
use tracing::Span;
use tracing::field::Empty;

use super::headers;
use super::route::Route;
use crate::engine::trace;

/// Starts the span, as a child of the caller's span if the request has one. `route` is absent when no route matched.
///
/// Probes and metric scrapes have no span: they are frequent and would drown the rest.
pub(super) fn begin(request: &HttpRequest, route: Option<&Route>, id: &str) -> Span {
    if route.is_some_and(Route::is_probe) {
        return Span::none();
    }
    // An unknown path, and every query, may contain anything, so neither is recorded.
    let span = tracing::debug_span!(
        "http_request",
        otel.name = %format_args!("{} {}", method(request), route.map_or("unmatched", |route| route.path)),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method(request),
        http.route = route.map(|route| route.path),
        http.response.status_code = Empty,
        url.scheme = "http",
        url.path = route.map(|_| request.path()),
        network.protocol.version = version(request),
        error.type = Empty,
        gavel.request.id = id,
    );
    if !span.is_disabled()
        && let Some(traceparent) = headers::traceparent(request.headers())
    {
        trace::continue_trace(&span, &traceparent);
    }
    span
}

/// Records the status of the response.
pub(super) fn answered(span: &Span, status: u16) {
    if span.is_disabled() {
        return;
    }
    // OpenTelemetry numbers are signed; an unsigned one would be exported as text.
    span.record("http.response.status_code", i64::from(status));
    // An invalid request is not an error of the server.
    if status >= 500 {
        failed(span, status);
    }
}

/// Records that the client left without a response.
pub(super) fn left(span: &Span) {
    if !span.is_disabled() {
        failed(span, "client_left");
    }
}

fn failed(span: &Span, kind: impl tracing::Value + std::fmt::Display) {
    span.record("error.type", tracing::field::display(kind));
    span.record("otel.status_code", "ERROR");
}

/// Clients may invent methods; all those unknown to HTTP share one name in traces.
fn method(request: &HttpRequest) -> &str {
    match request.method().as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH") => known,
        _ => "_OTHER",
    }
}

fn version(request: &HttpRequest) -> &'static str {
    match request.version() {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
