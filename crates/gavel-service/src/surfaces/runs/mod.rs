//! The life of a run, for every surface: it is begun, waited for, watched, cancelled and resumed, and worked on.
//!
//! A run that a caller waits for is executed at once by the process that received the request. A background run is
//! queued, and executed by the process that claims it. Either way, the run's row is authoritative, and the run is
//! leased to the process that executes it. If that process dies, another one continues the run.

mod begin;
mod cancel;
mod error;
mod read;
mod refuse;
mod resume;
mod start;
mod wait;
mod watch;
mod work;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use begin::Begin;
pub use error::RunError;
pub use resume::Resume;
pub use start::Begun;
pub(crate) use watch::{LogItem, Logged};
pub use watch::{PlacedEvent, Watch};

pub use crate::api::events::{Event, RunEvent};
use crate::domain::budget::{Budget, Pool};
use crate::domain::ids::ConversationId;
use crate::engine::agent::Agents;
use crate::ports::quota::Quota;
pub use crate::ports::runs::{InThread, Origin};

/// Maximum concurrent store reads for waiting callers: the other read connections are for requests.
const LOOKS: usize = 2;

/// All runs that this process begins, executes, or is asked about.
pub struct Runs {
    agents: Arc<Agents>,
    quota: Arc<dyn Quota>,
    leases: work::Leases,
    unrecorded: Arc<work::Unrecorded>,
    /// Limits the runs that callers wait for.
    admission: Arc<Budget>,
    /// The background runs.
    background: work::Background,
    /// Limits the concurrent store reads of waiting callers.
    looks: Arc<Semaphore>,
    working: TaskTracker,
    halt: CancellationToken,
    halt_waited_for: CancellationToken,
    cut: CancellationToken,
    ended: CancellationToken,
}

/// How many runs a process executes at once.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce {
    /// Runs that callers wait for; further ones are rejected.
    pub waited_for: usize,
    /// Background runs; further ones wait.
    pub background: usize,
}

impl Runs {
    /// Over the engine's agents.
    #[must_use]
    pub fn new(agents: Arc<Agents>, quota: Arc<dyn Quota>, at_once: AtOnce) -> Arc<Self> {
        Arc::new(Self {
            agents,
            quota,
            leases: work::Leases::default(),
            unrecorded: Arc::default(),
            admission: Budget::new(Pool::WaitedFor, Pool::WaitedFor.limits(at_once.waited_for as u64)),
            background: work::Background::new(at_once.background),
            looks: Arc::new(Semaphore::new(LOOKS)),
            working: TaskTracker::new(),
            halt: CancellationToken::new(),
            halt_waited_for: CancellationToken::new(),
            cut: CancellationToken::new(),
            ended: CancellationToken::new(),
        })
    }

    /// Wall clock, microseconds since the epoch.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.agents.engine.clock.now_us()
    }

    /// The instant before the store is asked for a lease.
    fn now(&self) -> Instant {
        self.agents.engine.clock.instant()
    }

    /// Stops background runs between two steps, so that another process can claim them.
    pub fn stop_background(&self) {
        self.halt.cancel();
    }

    /// How many runs are being executed or created.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.working.len()
    }

    /// Waits until all work has ended.
    pub async fn drained(&self) {
        self.working.close();
        self.working.wait().await;
    }

    /// Stops the runs that callers wait for between two steps as well.
    pub fn stop_waited_for(&self) {
        self.halt_waited_for.cancel();
    }

    /// Interrupts every run at once, even during calls.
    pub fn cut_short(&self) {
        self.cut.cancel();
    }

    /// Stops the renewal of leases.
    pub fn end(&self) {
        self.ended.cancel();
    }
}

fn conversation(of: impl std::fmt::Display) -> ConversationId {
    ConversationId::parse(of.to_string()).unwrap_or_else(|_| unreachable!("a UUID is a valid id"))
}
