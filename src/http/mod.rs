//! The HTTP edge: extract, call one surface, answer.
//!
//! A request passes, in this order: [`exchange`] (its id, meters), [`caller`] (who is asking),
//! [`body`] (limits), its resource (parse, user, idempotency), and the surface (quota, admission).
//! Everything that is no answer of a surface leaves as a problem of [`error`], RFC 9457.
//!
//! What is absent on purpose: CORS (no browser of another origin may call), compression (answers
//! are small, streams must not be held back), and middleware (a handler is a plain function, so its
//! cost is visible).

pub mod caller;
pub mod error;
pub mod google;
pub mod health;

mod acting;
mod agents;
mod approvals;
mod body;
mod chat;
mod connection;
mod console;
mod decisions;
mod docs;
mod exchange;
mod headers;
mod lines;
mod meters;
mod openapi;
mod page;
mod query;
mod room;
mod routes;
mod runs;
mod server;
mod span;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use self::caller::Auth;
use self::health::Surroundings;
pub use self::openapi::document;
use self::room::Room;
pub use self::server::{ServerSettings, server};
use crate::domain::budget::Limits;
use crate::surfaces::agents::AgentRuns;
use crate::surfaces::approvals::Approvals;
use crate::surfaces::chat::Chat;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::sessions::Sessions;
use crate::surfaces::threads::Threads;

/// Everything the edge answers from.
pub struct Edge {
    /// Surface C.
    pub chat: Arc<Chat>,
    /// Surfaces D and X.
    pub agents: Arc<AgentRuns>,
    /// Surface R.
    pub threads: Arc<Threads>,
    /// What waits for people.
    pub approvals: Arc<Approvals>,
    /// Logins to the console.
    pub sessions: Arc<Sessions>,
    /// The analysts' queries.
    pub decisions: DecisionQueries,
    /// How callers prove who they are.
    pub auth: Auth,
    /// What the application knows of the parts, and the meters.
    pub surroundings: Arc<dyn Surroundings>,
    /// Whoever connects Google accounts; without one there is no callback route.
    pub google: Option<Arc<dyn google::Callback>>,
    /// Bounds of connections and requests.
    pub limits: EdgeLimits,
}

/// Bounds of connections and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Most bytes of a body.
    pub body: usize,
    /// Longest time a body may take to arrive.
    pub body_time: Duration,
    /// Longest wait for the first byte of a connection, and for its first head.
    pub head_time: Duration,
    /// Longest wait for the next request, and for a peer that takes nothing of its answer. Longer than
    /// the minute after which load balancers commonly give up an idle connection, so that they close
    /// first.
    pub quiet_time: Duration,
    /// How often a silent stream shows that it is alive; proxies commonly give up after 30 s or a minute.
    pub heartbeat: Duration,
    /// Most connections of the process; more wait until one is closed.
    pub connections: usize,
    /// Bytes of bodies that callers have under way.
    pub bodies: Limits,
    /// Streams that callers have open.
    pub streams: Limits,
    /// Bytes of large answers that their readers have not taken yet.
    pub answers: Limits,
}

impl Default for EdgeLimits {
    /// Bodies of 1 MiB in 30 s; heads in 10 s; 75 s of quiet, 10 s in a stream. Bodies of 16 MiB of a user at once are more
    /// than honest callers send in many pieces, and 64 MiB in all leave memory for the work; a user with 64 streams open
    /// has ten tabs in six browsers.
    fn default() -> Self {
        Self {
            body: 1024 * 1024,
            body_time: Duration::from_secs(30),
            head_time: Duration::from_secs(10),
            quiet_time: Duration::from_secs(75),
            heartbeat: Duration::from_secs(10),
            connections: 4096,
            bodies: Limits {
                process: 64 << 20,
                tenant: 32 << 20,
                user: 16 << 20,
            },
            streams: Limits {
                process: 1024,
                tenant: 512,
                user: 64,
            },
            // Three of the largest pages of a caller, and six in all.
            answers: Limits {
                process: 64 << 20,
                tenant: 48 << 20,
                user: 32 << 20,
            },
        }
    }
}

/// The edge as handlers see it.
struct State {
    edge: Edge,
    meters: meters::Meters,
    docs: docs::Docs,
    attempts: console::Attempts,
    room: Room,
}

impl State {
    fn new(edge: Edge) -> Self {
        Self {
            room: Room::new(&edge.limits),
            edge,
            meters: meters::Meters::default(),
            docs: docs::Docs::new(),
            attempts: console::Attempts::default(),
        }
    }
}
