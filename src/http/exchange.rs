//! One request and its answer: id, meters, log line, span.

use std::time::Instant;

use actix_web::http::{ConnectionType, StatusCode};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use tracing::Span;

use super::State;
use super::connection::Busy;
use super::error::Error;
use super::headers::{REQUEST_ID, RequestId};
use super::meters::CLIENT_LEFT;
use super::routes::Route;
use super::span;

/// Lives from the request's head to the end of its answer. Dropped before it was answered, it
/// counts as a client that left.
pub(super) struct Exchange {
    pub(super) id: RequestId,
    /// Ends with the exchange. What works on the request runs in it.
    pub(super) span: Span,
    state: Data<State>,
    route: Option<Route>,
    status: u16,
    began: Instant,
    _busy: Option<Busy>,
}

impl Exchange {
    /// Begins; `route` is absent when none matched.
    pub(super) fn begin(state: &Data<State>, request: &HttpRequest, route: Option<Route>) -> Self {
        let id = RequestId::of(request.headers());
        Self {
            span: span::begin(request, route, &id.text),
            id,
            state: Data::clone(state),
            route,
            status: CLIENT_LEFT,
            began: Instant::now(),
            _busy: Busy::on(request),
        }
    }

    /// Answers, and ends.
    pub(super) fn finish(mut self, answer: Result<HttpResponse, Error>) -> HttpResponse {
        let mut response = answer.unwrap_or_else(|error| error.respond(&self.id.text));
        self.stamp(&mut response);
        if self.state.edge.surroundings.stopping() {
            // The client's next request goes to whoever serves then.
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        self.answered(response.status());
        response
    }

    /// Gives a response the request's id.
    pub(super) fn stamp(&self, response: &mut HttpResponse) {
        response.headers_mut().insert(REQUEST_ID, self.id.header.clone());
    }

    /// The answer is complete, as far as the edge can tell.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.state.meters.count(self.route, self.status, took);
        if self.status == CLIENT_LEFT {
            span::left(&self.span);
        } else {
            span::answered(&self.span, self.status);
        }
        tracing::debug!(
            request_id = &*self.id.text,
            route = self.route.map_or("unmatched", Route::path),
            status = self.status,
            duration_ms = took.as_secs_f64() * 1e3,
            "request answered"
        );
    }
}
