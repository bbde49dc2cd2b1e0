//! One request and its response: id, metrics, log line, span.

use std::time::Instant;

use actix_web::http::{ConnectionType, StatusCode, Version};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use tracing::Span;
use tracing::field::Empty;

use crate::engine::trace;
use crate::http::State;
use crate::http::connections::Busy;
use crate::http::error::{Code, Error};
use crate::http::headers::{self, REQUEST_ID, RequestId};
use crate::http::room::kept;
use crate::http::routes::{Path, Route};
use crate::http::spelling::Spelling;
use crate::ports::metrics::{HTTP_REQUESTS, HTTP_SECONDS};

/// Lives from the request's head to the end of its response. If dropped before, it counts as a client that left.
pub(super) struct Exchange {
    pub(super) id: RequestId,
    /// The span of the exchange. Work on the request runs in it.
    pub(super) span: Span,
    pub(super) state: Data<State>,
    pub(super) route: Option<&'static Route>,
    /// The error text if there is no such object as the path names ([`Path::fill`]).
    pub(super) missing: Option<&'static str>,
    status: u16,
    began: Instant,
    request: HttpRequest,
    _busy: Option<Busy>,
}

impl Exchange {
    /// Starts the exchange; `route` is absent when no route matched.
    pub(super) fn begin(state: &Data<State>, request: &HttpRequest, route: Option<&'static Route>) -> Self {
        let id = RequestId::of(request.headers());
        state.in_flight.increment(1.0);
        Self {
            span: begin_span(request, route, &id.text),
            id,
            state: Data::clone(state),
            route,
            missing: None,
            status: CLIENT_LEFT,
            began: Instant::now(),
            request: request.clone(),
            _busy: Busy::on(request),
        }
    }

    /// Completes the exchange with a response or an error.
    pub(super) fn finish(mut self, answer: Result<HttpResponse, Error>) -> HttpResponse {
        let roomy = answer.and_then(|response| Ok(kept(&self.state.room.answers, &self.request, response)?));
        let mut response = roomy.unwrap_or_else(|mut error| {
            if let Some(missing) = self.missing.filter(|_| error.problem == Code::NotFound.into()) {
                error = Error::new(Code::NotFound, Path(&self.request).fill(missing));
            }
            error.respond(&self.id.text, Spelling::of(self.route))
        });
        self.stamp(&mut response);
        if self.state.edge.surroundings.stopping() {
            // The client then sends its next request to another process.
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        self.answered(response.status());
        response
    }

    /// Formats an error as a problem, for the last event of a stream.
    pub(super) fn problem(&self, error: impl Into<Error>) -> String {
        error.into().problem(&self.id.text, Spelling::of(self.route)).1
    }

    /// Adds the request id to a response.
    pub(super) fn stamp(&self, response: &mut HttpResponse) {
        response.headers_mut().insert(REQUEST_ID, self.id.header.clone());
    }

    /// Marks the response as complete, as far as the edge knows.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let route = self.route.map_or("unmatched", |route| route.path);
        HTTP_REQUESTS
            .with([route.into(), self.status.to_string().into()])
            .increment(1);
        HTTP_SECONDS.with([route.into()]).record(took);
        self.state.in_flight.decrement(1.0);
        record(&self.span, self.status);
        tracing::debug!(
            request_id = &*self.id.text,
            route,
            status = self.status,
            duration_ms = took.as_secs_f64() * 1e3,
            "request answered"
        );
    }
}

/// Starts the span, as a child of the caller's span if the request has one. `route` is absent when no route matched.
///
/// Probes and metric scrapes have no span: they are frequent and would drown the rest.
pub(super) fn begin_span(request: &HttpRequest, route: Option<&Route>, id: &str) -> Span {
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

/// Records the status of the response, and whether the server or the client failed.
fn record(span: &Span, status: u16) {
    if span.is_disabled() {
        return;
    }
    if status != CLIENT_LEFT {
        // OpenTelemetry numbers are signed; an unsigned one would be exported as text.
        span.record("http.response.status_code", i64::from(status));
    }
    // An invalid request is not an error of the server.
    let error = match status {
        CLIENT_LEFT => "client_left".to_owned(),
        500.. => status.to_string(),
        _ => return,
    };
    span.record("error.type", error);
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

/// The client left before its response; counted under nginx's status and never sent.
pub(super) const CLIENT_LEFT: u16 = 499;
