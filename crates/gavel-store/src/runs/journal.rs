//! The journal of a run and its usage, as they grow.

use std::sync::LazyLock;

use super::super::batch::Batch;
use super::super::db::{Conn, sql, values};
use super::super::error::Fault;
use super::super::insert::Insert;
use super::CANCELLED;
use super::columns::ENTRY;
use crate::domain::ids::RunId;
use crate::ports::commit::Spent;
use crate::ports::runs::{LoggedEntry, StoredEntry};

impl Batch<'_> {
    /// Whether the run, or a run above it, was cancelled, and this entry was not written before that. The worker may
    /// not have seen the cancellation yet.
    pub(crate) async fn is_cancelled_before(&self, conn: &mut Conn, run: RunId, entry: u64) -> Result<bool, Fault> {
        let cancelled = sql!(
            "{CANCELLED} AND NOT EXISTS (SELECT 1 FROM agent_run_entry WHERE run_id = $1 AND number = $2) LIMIT 1"
        );
        Ok(conn.exists(cancelled, values![run, entry]).await?)
    }

    /// Updates the usage of a run while it runs.
    pub(crate) async fn update_usage(&self, conn: &mut Conn, spent: &Spent) -> Result<(), Fault> {
        let update = "UPDATE agent_run SET steps = $2, input_tokens = $3, output_tokens = $4, thought_tokens = $5, \
                      cached_tokens = $6 WHERE id = $1";
        let usage = spent.usage;
        let values = values![
            spent.run,
            spent.steps,
            usage.input_tokens,
            usage.output_tokens,
            usage.thought_tokens,
            usage.cached_tokens,
        ];
        conn.execute(update, values).await?;
        Ok(())
    }

    /// Adds entries to the journal of a run, and to the event log of its outermost run, whose last position is `last`.
    pub(crate) async fn enter(
        &self,
        conn: &mut Conn,
        root: RunId,
        run: RunId,
        last: u64,
        entries: &[StoredEntry],
    ) -> Result<(), Fault> {
        static ENTER: LazyLock<Insert> = LazyLock::new(|| ENTRY.inserts("ON CONFLICT (run_id, number) DO NOTHING"));
        let mut rows = Vec::with_capacity(entries.len() * 7);
        for (position, entry) in (last + 1..).zip(entries.iter().cloned()) {
            rows.extend(ENTRY.begin(&(root, LoggedEntry { position, run, entry }), self.writing));
        }
        ENTER.run(conn, rows).await?;
        Ok(())
    }
}
