//! What all runs remember at once.
//!
//! The limit of one run does not bound many of them. So a run takes a share of one budget for what is in its journal, and gives it
//! back when it ends or waits. What is small is not counted.

use std::sync::{Arc, LazyLock};

use super::Run;
use super::limits::MOST_JOURNAL;
use crate::domain::budget::{Budget, FREE, Held, Limits};
use crate::domain::journal::Entry;

const MIB: u64 = 1024 * 1024;
/// In bytes of memory; the largest run takes 32 MiB.
const LIMITS: Limits = Limits {
    process: 160 * MIB,
    tenant: 128 * MIB,
    user: 96 * MIB,
};
/// How often a byte of a journal is in memory: there, and in the request to the model or in what is recorded.
const COPIES: usize = 2;

static REMEMBERED: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new("bytes that runs remember", LIMITS));

/// Counts what is in a run's journal now.
///
/// # Errors
/// It is more than a run may remember, or than there is room for beside the others: in words.
pub(super) fn count(run: &mut Run) -> Result<(), String> {
    let size: usize = run.journal.iter().map(Entry::size).sum();
    if size > MOST_JOURNAL {
        return Err(format!(
            "what it has said and been told is {size} bytes; a run may remember {MOST_JOURNAL}"
        ));
    }
    if size <= FREE {
        return Ok(());
    }
    let (tenant, user) = (&run.record.tenant, &run.record.user);
    let held = run.remembered.get_or_insert_with(|| {
        let (tenant, user) = (tenant.to_string(), user.to_string());
        Held::new(std::borrow::Cow::Owned(Arc::clone(&REMEMBERED)), tenant, user, COPIES)
    });
    held.grow_to(size).map_err(|exceeded| {
        format!("what it has said and been told is {size} bytes, and there is no room for that now beside other runs: {exceeded}")
    })
}
