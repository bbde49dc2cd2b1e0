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

    pub(in super::super) async fn enter(
        &self,
        conn: &mut Conn,
        run: RunId,
        entries: &[StoredEntry],
    ) -> Result<(), Fault> {
        let mut rows = Vec::with_capacity(entries.len() * 5);
        for entry in entries {
            rows.extend([
                id(run),
                count(entry.number),
                int(entry.at_us),
                int(entry.elapsed_us),
                Value::shared(&entry.body),
            ]);
        }
        self.texts().entry.run(conn, rows).await?;
        Ok(())
    }
}
