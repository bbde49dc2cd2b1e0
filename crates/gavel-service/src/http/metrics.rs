//! Metrics of the HTTP edge: requests by route and status, and their duration.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::route::Route;

const REQUESTS: &str = "gavel_http_requests_total";
const TOOLS_MISSING: &str = "gavel_granted_tools_missing";
const DURATION: &str = "gavel_http_request_duration_seconds";

/// The client left before its response; counted under nginx's status and never sent.
pub(super) const CLIENT_LEFT: u16 = 499;

/// The statuses that the edge returns.
const STATUSES: [u16; 21] = [
    200,
    201,
    202,
    303,
    304,
    307,
    400,
    401,
    403,
    404,
    405,
    408,
    409,
    412,
    413,
    415,
    422,
    429,
    CLIENT_LEFT,
    500,
    503,
];

/// Metric handles, resolved once each instead of once per request.
pub(super) struct Metrics {
    /// By the number of the route.
    known: Vec<RouteMetrics>,
    unmatched: RouteMetrics,
}

#[derive(Default)]
struct RouteMetrics {
    duration: OnceLock<Histogram>,
    requests: [OnceLock<Counter>; STATUSES.len()],
}

impl Metrics {
    /// For a table with this many routes.
    pub(super) fn new(routes: usize) -> Self {
        Self {
            known: (0..routes).map(|_| RouteMetrics::default()).collect(),
            unmatched: RouteMetrics::default(),
        }
    }

    /// Counts one request; `route` is absent when no route matched.
    pub(super) fn count(&self, route: Option<&Route>, status: u16, took: Duration) {
        let metrics = route.map_or(&self.unmatched, |route| &self.known[route.number]);
        let label = route.map_or("unmatched", |route| route.path);
        let duration = || metrics::histogram!(DURATION, "route" => label);
        metrics.duration.get_or_init(duration).record(took);
        let requests = || metrics::counter!(REQUESTS, "route" => label, "status" => status.to_string());
        match STATUSES.iter().position(|known| *known == status) {
            Some(n) => metrics.requests[n].get_or_init(requests).increment(1),
            None => requests().increment(1),
        }
    }
}

/// Sets the number of tools of the constitution that are unavailable.
#[allow(clippy::cast_precision_loss)] // A few names.
pub(super) fn tools_missing(count: usize) {
    metrics::gauge!(TOOLS_MISSING).set(count as f64);
}

/// Registers the descriptions of the metrics.
pub(super) fn describe() {
    metrics::describe_counter!(
        REQUESTS,
        "HTTP requests by route and status; 499: the client left before its response"
    );
    metrics::describe_gauge!(
        TOOLS_MISSING,
        "Tools of the constitution that no server offers, or more than one server offers"
    );
    metrics::describe_histogram!(
        DURATION,
        metrics::Unit::Seconds,
        "Time from a request's head to the end of its response"
    );
}
