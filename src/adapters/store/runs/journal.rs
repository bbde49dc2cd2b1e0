//! The journal of a run and its usage, as they grow.

use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::values::{count, id, int, tokens};
use crate::domain::ids::RunId;
use crate::ports::commit::Spent;
use crate::ports::runs::StoredEntry;

impl Batch<'_> {
    /// Whether the run, or a run above it, was cancelled, and this entry was not written before that. The worker may
    /// not have seen the cancellation yet.
    pub(in super::super) async fn is_cancelled_before(
        &self,
        conn: &mut Conn,
        run: RunId,
        entry: u64,
    ) -> Result<bool, Fault> {
        let values = vec![id(run), count(entry)];
        Ok(conn.first(&self.texts().cancelled_before, values).await?.is_some())
    }

    /// Updates the usage of a run while it runs.
    pub(in super::super) async fn update_usage(&self, conn: &mut Conn, spent: &Spent) -> Result<(), Fault> {
        let mut values = vec![id(spent.run), int(i64::from(spent.steps))];
        values.extend(tokens(spent.usage));
        conn.execute(&self.texts().update_usage, values).await?;
        Ok(())
    }

    /// Adds entries to the journal of a run, and to the event log of its outermost run, whose last position is `last`.
    pub(in super::super) async fn enter(
        &self,
        conn: &mut Conn,
        root: RunId,
        run: RunId,
        last: u64,
        entries: &[StoredEntry],
    ) -> Result<(), Fault> {
        let mut rows = Vec::with_capacity(entries.len() * 7);
        for (position, entry) in (last + 1..).zip(entries) {
            rows.extend([
                id(run),
                count(entry.number),
                int(entry.at_us),
                int(entry.elapsed_us),
                Value::shared(&entry.body),
                id(root),
                count(position),
            ]);
        }
        self.texts().entry.run(conn, rows).await?;
        Ok(())
    }
}
