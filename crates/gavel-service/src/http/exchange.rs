//! One request and its response: id, metrics, log line, span.

use std::time::Instant;

use actix_web::http::{ConnectionType, StatusCode};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use tracing::Span;

use super::State;
use super::connection::Busy;
use super::error::Error;
use super::headers::{REQUEST_ID, RequestId};
use super::metrics::CLIENT_LEFT;
use super::route::{Path, Route};
use super::span;
use super::spelling::Spelling;

/// Lives from the request's head to the end of its response. If dropped before, it counts as a client that left.
pub(super) struct Exchange {
    pub(super) id: RequestId,
    /// The span of the exchange. Work on the request runs in it.
    pub(super) span: Span,
    pub(super) state: Data<State>,
    pub(super) route: Option<&'static Route>,
    /// Writes the error text if there is no such object as the path names.
    pub(super) missing: Option<fn(&Path<'_>) -> String>,
    status: u16,
    began: Instant,
    request: HttpRequest,
    _busy: Option<Busy>,
}

impl Exchange {
    /// Starts the exchange; `route` is absent when no route matched.
    pub(super) fn begin(state: &Data<State>, request: &HttpRequest, route: Option<&'static Route>) -> Self {
        let id = RequestId::of(request.headers());
        Self {
            span: span::begin(request, route, &id.text),
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
        let roomy = answer.and_then(|response| Ok(self.state.room.answer(&self.request, response)?));
        let mut response = roomy.unwrap_or_else(|error| {
            match (error, self.missing) {
                (Error::NotFound, Some(missing)) => Error::Missing(missing(&Path(&self.request))),
                (error, _) => error,
            }
            .respond(&self.id.text, Spelling::of(self.route))
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
        self.state.metrics.count(self.route, self.status, took);
        if self.status == CLIENT_LEFT {
            span::left(&self.span);
        } else {
            span::answered(&self.span, self.status);
        }
        tracing::debug!(
            request_id = &*self.id.text,
            route = self.route.map_or("unmatched", |route| route.path),
            status = self.status,
            duration_ms = took.as_secs_f64() * 1e3,
            "request answered"
        );
    }
}
