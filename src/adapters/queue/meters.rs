//! The queue's metrics; docs/operations.md lists them.

use metrics::{Counter, Gauge, counter, gauge};

/// How a job ended, as the label `result` of `gavel_run_queue_jobs_total`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// The worker returned.
    Done,
    /// It panicked.
    Panicked,
    /// The job does not contain a run id.
    Unreadable,
}

impl Ended {
    const ALL: [Self; 3] = [Self::Done, Self::Panicked, Self::Unreadable];

    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Panicked => "panicked",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Registers every metric at start. Prometheus sees no increase in a counter whose first value is 1.
pub(super) fn register() {
    for counter in [push_failures(), worker_restarts()] {
        counter.increment(0);
    }
    for ended in Ended::ALL {
        jobs(ended).increment(0);
    }
    up().set(0.0);
    running().set(0.0);
}

pub(super) fn up() -> Gauge {
    gauge!("gavel_run_queue_up")
}

pub(super) fn running() -> Gauge {
    gauge!("gavel_run_queue_running")
}

pub(super) fn jobs(ended: Ended) -> Counter {
    counter!("gavel_run_queue_jobs_total", "result" => ended.as_str())
}

pub(super) fn push_failures() -> Counter {
    counter!("gavel_run_queue_push_failures_total")
}

pub(super) fn worker_restarts() -> Counter {
    counter!("gavel_run_queue_worker_restarts_total")
}
