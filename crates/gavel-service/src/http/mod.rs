//! The HTTP edge: extract the request, call one surface, respond.
//!
//! A request passes, in this order: [`exchange`] (its id, metrics), [`caller`] (authentication), [`body`] (limits), its
//! resource (parse, user, idempotency), and the surface (quota, admission). Every response that does not come from a
//! surface is a problem of [`error`], RFC 9457.
//!
//! Deliberately absent: CORS (no browser of another origin may call), compression (responses are small, and streams
//! must not be delayed), and middleware (a handler is a plain function, so its cost is visible).

pub mod caller;
pub mod error;
pub mod google;
pub mod health;

mod agents;
mod answer;
mod approvals;
mod body;
mod chat;
mod connections;
mod console;
mod decisions;
mod docs;
mod exchange;
mod exports;
mod headers;
mod openapi;
mod planning;
mod query;
mod request;
mod room;
mod routes;
mod runs;
mod server;
mod spelling;
mod stats;
mod stream;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use self::caller::Auth;
use self::health::Surroundings;
pub use self::openapi::document;
use self::room::Room;
pub use self::routes::routes;
pub use self::server::{ServerSettings, server};
use crate::domain::budget::{Limits, Pool};
use crate::ports::metrics::{Gauge, HTTP_IN_FLIGHT};
use crate::surfaces::agents::DeclaredAgents;
use crate::surfaces::approvals::Approvals;
use crate::surfaces::chat::Chat;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::definitions::Directory;
use crate::surfaces::exports::Exporter;
use crate::surfaces::planning::Planning;
use crate::surfaces::runs::Runs;
use crate::surfaces::sessions::Sessions;
use crate::surfaces::stats::StatsQueries;
use crate::surfaces::threads::Threads;

/// Everything that the edge needs.
pub struct Edge {
    /// Surface C.
    pub chat: Arc<Chat>,
    /// Surface D.
    pub directory: Arc<Directory>,
    /// The life of runs.
    pub runs: Arc<Runs>,
    /// Surface X.
    pub agents: Arc<DeclaredAgents>,
    /// Surface R.
    pub threads: Arc<Threads>,
    /// Surface P.
    pub planning: Arc<Planning>,
    /// The surface of approvals.
    pub approvals: Arc<Approvals>,
    /// Login sessions of the console.
    pub sessions: Arc<Sessions>,
    /// The decision-log queries of analysts.
    pub decisions: DecisionQueries,
    /// Statistics of the logs.
    pub stats: StatsQueries,
    /// Exports of the logs.
    pub exports: Exporter,
    /// How callers authenticate.
    pub auth: Auth,
    /// State of the other parts, and the metrics.
    pub surroundings: Arc<dyn Surroundings>,
    /// Stores connected Google accounts; if absent, there is no callback route.
    pub google: Option<Arc<dyn google::Callback>>,
    /// Limits of connections and requests.
    pub limits: EdgeLimits,
}

/// Limits of connections and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Most bytes of a body.
    pub body: usize,
    /// Longest time a body may take to arrive.
    pub body_time: Duration,
    /// Longest wait for the first byte of a connection, and for its first head.
    pub head_time: Duration,
    /// Longest wait for the next request, and for a peer that reads nothing of its response. Longer than the minute
    /// after which load balancers commonly close an idle connection, so that they close it first.
    pub quiet_time: Duration,
    /// Interval of heartbeats in a silent stream; proxies commonly time out after 30 s or a minute.
    pub heartbeat: Duration,
    /// Most connections of the process; a further one takes the place of one that is idle.
    pub connections: usize,
    /// Bytes of request bodies in progress.
    pub bodies: Limits,
    /// Open streams.
    pub streams: Limits,
    /// Bytes of large responses that clients have not read yet.
    pub answers: Limits,
}

impl Default for EdgeLimits {
    /// Bodies of 1 MiB in 30 s; heads in 10 s; 75 s of quiet, 10 s in a stream.
    fn default() -> Self {
        Self {
            body: 1024 * 1024,
            body_time: Duration::from_secs(30),
            head_time: Duration::from_secs(10),
            quiet_time: Duration::from_secs(75),
            heartbeat: Duration::from_secs(10),
            connections: 4096,
            bodies: Pool::Bodies.limits(0),
            streams: Pool::Streams.limits(0),
            answers: Pool::Answers.limits(0),
        }
    }
}

/// The shared state of handlers.
struct State {
    edge: Edge,
    attempts: console::Attempts,
    room: Room,
    /// Of streams.
    chunks: stream::Chunks,
    in_flight: Gauge,
}

impl State {
    fn new(edge: Edge) -> Self {
        Self {
            room: Room::new(&edge.limits),
            edge,
            attempts: console::Attempts::default(),
            chunks: stream::Chunks::default(),
            in_flight: HTTP_IN_FLIGHT.get(),
        }
    }
}
