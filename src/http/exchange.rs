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
use super::routes::Route;
use super::span;
use super::spelling::Spelling;

/// Most characters of a path name that an error repeats; valid names are shorter.
const LONGEST_NAME: usize = 80;

/// Lives from the request's head to the end of its response. If dropped before, it counts as a client that left.
pub(super) struct Exchange {
    pub(super) id: RequestId,
    /// The span of the exchange. Work on the request runs in it.
    pub(super) span: Span,
    state: Data<State>,
    pub(super) route: Option<&'static Route>,
    /// Error text for a missing object, naming what the path names.
    pub(super) missing: Option<String>,
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
            missing: route.and_then(|route| missing(route, request)),
            status: CLIENT_LEFT,
            began: Instant::now(),
            request: request.clone(),
            _busy: Busy::on(request),
        }
    }

    /// Completes the exchange with a response or an error.
    pub(super) fn finish(mut self, answer: Result<HttpResponse, Error>) -> HttpResponse {
        let missing = self.missing.take();
        let roomy = answer.and_then(|response| Ok(self.state.room.answer(&self.request, response)?));
        let mut response = roomy.unwrap_or_else(|error| {
            match (error, missing) {
                (Error::NotFound, Some(what)) => Error::Missing(what),
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

/// Error text saying that the named object does not exist. An object of another user gets the same text.
fn missing(route: &Route, request: &HttpRequest) -> Option<String> {
    let named = |part: &str| -> String {
        let name = request.match_info().get(part).unwrap_or_default();
        name.chars().take(LONGEST_NAME).collect()
    };
    let agent = || format!("agent {:?} in the project {:?}", named("agent"), named("project"));
    Some(match route.path {
        "/api/projects/{project}/agents" | "/api/projects/{project}/runs" => {
            format!("There is no project {:?} with agents.", named("project"))
        }
        "/api/projects/{project}/agents/{agent}" | "/api/projects/{project}/agents/{agent}/trigger" => {
            format!("There is no {}.", agent())
        }
        "/api/projects/{project}/agents/{agent}/versions" => {
            format!("There is no {} with versions; an agent from a file has none.", agent())
        }
        "/api/projects/{project}/agents/{agent}/versions/{version}"
        | "/api/projects/{project}/agents/{agent}/versions/{version}/restore" => {
            format!(
                "There is no version {:?} of an {}; an agent from a file has none.",
                named("version"),
                agent()
            )
        }
        "/api/runs/{id}" | "/api/runs/{id}/events" | "/api/runs/{id}/cancel" | "/api/runs/{id}/resume" => {
            format!("There is no run {:?}, or it belongs to another user.", named("id"))
        }
        "/v1/sessions/{id}"
        | "/v1/sessions/{id}/refine"
        | "/v1/sessions/{id}/plan"
        | "/v1/sessions/{id}/cancel"
        | "/v1/sessions/{id}/execute"
        | "/v1/sessions/{id}/history"
        | "/v1/sessions/{id}/log"
        | "/v1/sessions/{id}/events" => {
            format!(
                "There is no planning session {:?}, or it belongs to another user.",
                named("id")
            )
        }
        "/v1/sessions/{id}/history/{version}" => format!(
            "There is no version {:?} of the plan of session {:?}, or the session belongs to another user.",
            named("version"),
            named("id")
        ),
        "/v1/sessions/{id}/tasks/{taskId}" => format!(
            "There is no task {:?} in session {:?}, or the session belongs to another user.",
            named("taskId"),
            named("id")
        ),
        "/v1/decisions/{id}" => format!("There is no decision {:?}, or it belongs to another user.", named("id")),
        _ => return None,
    })
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

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    /// An object that is missing is named by every route about one. The routes of threads and grants have errors of their
    /// own.
    #[test]
    fn what_is_missing_is_named() {
        let request = TestRequest::default().to_http_request();
        let own = ["/api/agent/", "/schemas/", "/docs/"];
        let about_one = |route: &Route| {
            route.is_of_the_api() && route.path.contains('{') && !own.iter().any(|own| route.path.starts_with(own))
        };
        for route in Route::all().iter().filter(|route| about_one(route)) {
            assert!(missing(route, &request).is_some(), "{}", route.path);
        }
    }
}
