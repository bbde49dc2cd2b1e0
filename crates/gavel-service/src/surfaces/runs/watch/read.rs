//! Reads journals as the event log has them.

use super::PAGE;
use crate::domain::ids::RunId;
use crate::domain::journal::Entry;
use crate::engine::agent::Agents;
use crate::engine::log;
use crate::engine::projection::Projection;
use crate::ports::runs::StoredEntry;
use crate::surfaces::StoreFailure;

/// What the entries of a run from this number on refer to.
pub(super) async fn projection(agents: &Agents, run: RunId, number: u64) -> Result<Projection, StoreFailure> {
    let (mut projection, mut after) = (Projection::default(), 0);
    while after + 1 < number {
        let page = entries(agents, run, after).await?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (_, entry) in page.iter().take_while(|(at, _)| *at < number) {
            projection.learn(entry);
        }
    }
    Ok(projection)
}

/// The next page of a journal.
pub(crate) async fn entries(agents: &Agents, run: RunId, after: u64) -> Result<Vec<(u64, Entry)>, StoreFailure> {
    let stored = agents.runs.journal(run, after, PAGE).await?;
    let read = stored.iter().map(|stored| Ok((stored.number, parsed(run, stored)?)));
    read.collect()
}

pub(super) fn parsed(run: RunId, stored: &StoredEntry) -> Result<Entry, StoreFailure> {
    log::read(stored).map_err(|error| {
        tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
        StoreFailure::Unavailable
    })
}
