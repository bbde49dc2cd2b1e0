//! Runs that this process executed and could not record.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::ids::RunId;

/// Waiting callers get an error after this many failures in a row to record a run.
const PATIENCE: u32 = 2;
/// How long a failure to record a run is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Runs that this process executed and could not record: the time of the last failure, and the number of failures in a
/// row.
#[derive(Default)]
pub(crate) struct Unrecorded(Mutex<HashMap<RunId, (Instant, u32)>>);

impl Unrecorded {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, (Instant, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failed(&self, run: RunId) {
        let mut runs = self.lock();
        let (last, times) = runs.entry(run).or_insert((Instant::now(), 0));
        (*last, *times) = (Instant::now(), times.saturating_add(1));
    }

    pub(crate) fn continued(&self, run: RunId) {
        self.lock().remove(&run);
    }

    /// This process does not learn that others have claimed such runs meanwhile.
    pub(super) fn forget_old(&self) {
        self.lock().retain(|_, (last, _)| last.elapsed() < REMEMBERED);
    }

    /// Did this process's last execution of the run end without a record?
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is it pointless to wait for this run?
    pub(crate) fn is_hopeless(&self, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|(_, times)| *times >= PATIENCE)
    }
}
