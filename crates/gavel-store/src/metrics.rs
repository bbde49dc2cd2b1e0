//! The store's metrics: `gavel_store_*`.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::domain::names::names;

names! {
    /// Why writes failed, as the label `kind` of `gavel_store_failures_total`.
    Failure {
        /// The database did not answer.
        Unavailable = "unavailable",
        /// The database rejected the row.
        Refused = "refused",
        /// No connection could be opened.
        Connect = "connect",
        /// The queue was full.
        Queue = "queue",
    }
}

/// Registers every metric at start. Prometheus sees no increase in a counter whose first value is 1, and the first
/// event is the one that an alert is for.
pub(super) fn register() {
    for counter in [lost(), batches_redone(), recovered_decisions(), recovered_calls()] {
        counter.increment(0);
    }
    for kind in Failure::ALL {
        failures(*kind).increment(0);
    }
    queue_depth().set(0.0);
    // A histogram is registered by its first lookup.
    let _ = (commit_seconds(), batch_ops());
}

pub(super) fn up() -> Gauge {
    gauge!("gavel_store_up")
}

pub(super) fn queue_depth() -> Gauge {
    gauge!("gavel_store_queue_depth")
}

pub(super) fn commit_seconds() -> Histogram {
    histogram!("gavel_store_commit_seconds")
}

pub(super) fn batch_ops() -> Histogram {
    histogram!("gavel_store_batch_ops")
}

pub(super) fn batches_redone() -> Counter {
    counter!("gavel_store_batches_redone_total")
}

pub(super) fn failures(kind: Failure) -> Counter {
    counter!("gavel_store_failures_total", "kind" => kind.as_str())
}

pub(super) fn lost() -> Counter {
    counter!("gavel_store_lost_total")
}

pub(super) fn recovered_decisions() -> Counter {
    counter!("gavel_store_recovered_decisions_total")
}

pub(super) fn recovered_calls() -> Counter {
    counter!("gavel_store_recovered_calls_total")
}
