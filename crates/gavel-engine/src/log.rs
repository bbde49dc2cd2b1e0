//! The journal of a run in the store, and the stored form of its entries.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::live::Live;
use super::next::Ending;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::Usage;
use crate::domain::ids::RunId;
use crate::domain::journal::Entry;
use crate::ports::commit::Spent;
use crate::ports::runs::{Hold, Runs, StoredEntry};

/// The journal of a run in the store.
#[derive(Clone)]
pub struct Log {
    /// The store.
    pub runs: Arc<dyn Runs>,
    /// The right to write there, and to start calls with effects.
    pub hold: Hold,
    /// The run of the journal.
    pub run: RunId,
    /// Number of written entries.
    pub written: usize,
    /// The flows to which the run belongs as a step, outermost first, with the usage of their ended steps.
    pub flows: Vec<Spent>,
    /// Its watchers.
    pub live: Live,
    /// The signals that stop it in this process.
    pub halt: Halt,
    /// Has this process created the run, so that it knows the row?
    pub(super) is_fresh: bool,
    /// Does the run clean up after itself? Its cancellation does not prevent that.
    pub(super) cleans_up: bool,
    /// Did processes lose the run so often that this one only ends it? Its child runs end with it.
    pub(super) is_lost: bool,
    /// How long processes that died have worked on it since its last entry, as far as that is known.
    pub(super) unseen: Duration,
    /// Is an append in progress that announces calls? Until it is confirmed, these calls may not be sent.
    pub(super) intending: bool,
    /// The number of entries once the commit that is being written is there; 0 if none is. Shared with the one who
    /// ends the run if its driver panics.
    pub(super) writing: Arc<AtomicUsize>,
}

impl Log {
    /// Why the run is cut short once it is cancelled, and how it ends.
    pub(super) fn cut_short(&self) -> (&'static str, Ending) {
        match self.is_lost {
            true => ("its process was lost", Ending::Stopped(StopReason::ProcessLost, None)),
            false => ("the run was cancelled", Ending::Cancelled),
        }
    }

    /// The journal of a child run, under the same lease.
    pub(super) fn of(&self, child: RunId, flows: Vec<Spent>) -> Self {
        Self {
            run: child,
            written: 0,
            flows,
            live: self.live.of(child),
            is_fresh: false,
            cleans_up: false,
            intending: false,
            writing: Arc::default(),
            ..self.clone()
        }
    }
}

/// Signals that stop a run in this process; the next worker continues it.
#[derive(Clone, Debug, Default)]
pub struct Halt {
    /// Stops between two steps.
    pub between_steps: CancellationToken,
    /// Stops at once, even during calls.
    pub at_once: CancellationToken,
}

/// The stored form of the entry that reopens a run, after this usage.
pub fn resumed(steps: u32, usage: Usage) -> Arc<str> {
    let entry = Entry::Resumed { steps, usage };
    text(&entry).into()
}

/// The stored form of an entry.
pub(super) fn text(entry: &Entry) -> String {
    serde_json::to_string(entry).unwrap_or_else(|error| unreachable!("an entry prints as JSON: {error}"))
}

/// Reads a stored entry.
///
/// # Errors
/// The entry is of a later version, or damaged; in words for an operator.
pub fn read(stored: &StoredEntry) -> Result<Entry, String> {
    serde_json::from_str(&stored.body).map_err(|error| format!("entry {}: {error}", stored.number))
}
