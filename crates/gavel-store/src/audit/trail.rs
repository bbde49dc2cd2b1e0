//! Collects the audit entries of a transaction.

use std::sync::{Mutex, PoisonError};

use super::entry::Entry;

/// The entries of a transaction, in order.
#[derive(Default)]
pub(crate) struct Trail(Mutex<Vec<Entry>>);

impl Trail {
    pub(super) fn push(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a transaction: discards entries of an earlier one.
    pub(crate) fn begin(&self) {
        self.take();
    }
}
