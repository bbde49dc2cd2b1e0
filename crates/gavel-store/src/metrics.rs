//! The store's metrics: those that exist from the start, and those that are read from the database.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::db::values;
use super::read::ReadOnly;
use crate::domain::action::ActionStatus;
use crate::domain::decision::Outcome;
use crate::domain::names::names;
use crate::domain::policy::SURFACES;
use crate::ports::metrics::{
    ACTIONS_IN_DOUBT, APPROVALS_OLDEST, APPROVALS_WAITING, DECISIONS, IN_DOUBT_OLDEST, STORE_FAILURES, STORE_QUEUE,
};

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

impl Failure {
    pub(super) fn count(self) {
        STORE_FAILURES.with([self.as_str().into()]).increment(1);
    }
}

/// Registers every line with labels at start. Prometheus sees no increase in a counter whose first value is 1, and the
/// first event is the one that an alert is for.
pub(super) fn register() {
    for kind in Failure::ALL {
        STORE_FAILURES.with([kind.as_str().into()]).increment(0);
    }
    for surface in SURFACES {
        for outcome in Outcome::ALL {
            DECISIONS.with([surface.into(), outcome.as_str().into()]).increment(0);
        }
    }
    STORE_QUEUE.get().set(0.0);
    set([f64::NAN; 4]);
}

/// Pause between two reads of what waits for a person.
const PAUSE: Duration = Duration::from_secs(15);

/// What waits for a person, by status, with the age of the oldest in microseconds. One partial index has all of it.
const WAITING: &str = "SELECT status, COUNT(*) AS number, \
                       @now - MIN(CASE status WHEN 'in_doubt' THEN COALESCE(completed_at, created_at) ELSE created_at END) AS oldest \
                       FROM agent_action WHERE status = 'awaiting_confirmation' OR status = 'in_doubt' GROUP BY status";

/// Reads what waits for a person, until `stop`. The numbers are not a number while the database cannot be read: an old
/// one would be a lie.
pub(super) async fn keep(readers: Arc<ReadOnly>, stop: CancellationToken) {
    #[derive(Deserialize)]
    struct Waiting {
        status: ActionStatus,
        number: u32,
        oldest: i64,
    }
    loop {
        let mut found = [0.0; 4];
        match readers.all::<Waiting>(WAITING, values![]).await {
            Ok(rows) => {
                for row in rows {
                    let at = if row.status == ActionStatus::InDoubt { 2 } else { 0 };
                    let oldest = u64::try_from(row.oldest).unwrap_or_default();
                    found[at] = f64::from(row.number);
                    found[at + 1] = Duration::from_micros(oldest).as_secs_f64();
                }
            }
            Err(error) => {
                tracing::debug!(%error, "what waits for a person could not be counted");
                found = [f64::NAN; 4];
            }
        }
        set(found);
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn set([waiting, oldest, in_doubt, oldest_in_doubt]: [f64; 4]) {
    APPROVALS_WAITING.get().set(waiting);
    APPROVALS_OLDEST.get().set(oldest);
    ACTIONS_IN_DOUBT.get().set(in_doubt);
    IN_DOUBT_OLDEST.get().set(oldest_in_doubt);
}
