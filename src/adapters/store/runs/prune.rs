//! Deletes old runs and threads.

use std::time::Duration;

use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::statements::MANY;
use super::values::{each, int};

impl Batch<'_> {
    /// Deletes runs that ended this long ago, with their child runs and their lines in threads. True if it deleted any:
    /// there may be more.
    pub(in super::super) async fn prune_runs(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX / 2);
        let mut roots = Vec::new();
        each(conn, &self.texts().prunable, vec![int(kept)], |row| {
            roots.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        let Some(last) = roots.last().cloned() else {
            return Ok(false);
        };
        roots.resize(MANY, last);
        let mut snapshots = Vec::new();
        each(conn, &self.texts().prunable_snapshots, roots.clone(), |row| {
            snapshots.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        conn.execute(&self.texts().prune_entries, roots.clone()).await?;
        conn.execute(&self.texts().prune_actions, roots.clone()).await?;
        conn.execute(&self.texts().prune_messages, roots.clone()).await?;
        conn.execute(&self.texts().prune, roots).await?;
        for snapshot in snapshots {
            // The row is locked before it is read, so that the second statement sees a run created meanwhile. If a run
            // is being created with this snapshot now, the snapshot is deleted together with that run later.
            if let Some(lock) = &self.texts().lock_snapshot
                && conn.first(lock, vec![snapshot.clone()]).await?.is_none()
            {
                continue;
            }
            conn.execute(&self.texts().prune_snapshot, vec![snapshot]).await?;
        }
        Ok(true)
    }

    /// Deletes threads that have been inactive for this long and have no runs left; their lines were deleted with their
    /// runs. True if there may be more.
    pub(in super::super) async fn prune_threads(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX / 2);
        let mut threads = Vec::new();
        each(conn, &self.texts().prunable_threads, vec![int(kept)], |row| {
            threads.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        let more = threads.len() == MANY;
        for thread in threads {
            conn.execute(&self.texts().prune_thread, vec![thread]).await?;
        }
        Ok(more)
    }
}
