//! Deletes old runs and threads.

use std::sync::Arc;
use std::time::Duration;

use super::super::batch::Batch;
use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use crate::domain::ids::{RunId, ThreadId};

/// Outermost runs that are deleted in one transaction: few, since their journals may be long.
const RUNS_AT_ONCE: usize = 8;
const THREADS_AT_ONCE: usize = 32;

impl Batch<'_> {
    /// Deletes runs that ended this long ago, with their child runs and their lines in threads. True if it deleted any:
    /// there may be more.
    pub(crate) async fn prune_runs(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        // Skips a run that is currently being resumed, and a run with an action in doubt until it is settled. A run of a
        // planning session is kept while the session is kept.
        let prunable = sql!(
            "SELECT run.id FROM agent_run run WHERE run.parent_run_id IS NULL AND run.completed_at IS NOT NULL \
             AND run.completed_at <= @now - $1 \
             AND NOT EXISTS (SELECT 1 FROM agent_action action WHERE action.root_id = run.id \
             AND action.status = 'in_doubt') \
             AND NOT EXISTS (SELECT 1 FROM planning_session session WHERE session.id = run.session_id) \
             ORDER BY run.completed_at LIMIT {RUNS_AT_ONCE} @postgres(FOR UPDATE OF run SKIP LOCKED)"
        );
        let roots: Vec<RunId> = conn.all(prunable, values![kept]).await?;
        if roots.is_empty() {
            return Ok(false);
        }
        let roots = vec![Value::list(roots)];
        let snapshots = "SELECT DISTINCT snapshot_hash FROM agent_run WHERE root_id @in($1) ORDER BY snapshot_hash";
        let snapshots: Vec<Arc<str>> = conn.all(snapshots, roots.clone()).await?;
        for delete in [
            "DELETE FROM agent_run_entry WHERE run_id IN (SELECT id FROM agent_run WHERE root_id @in($1))",
            "DELETE FROM agent_action WHERE root_id @in($1)",
            "DELETE FROM thread_message WHERE run_id IN (SELECT id FROM agent_run WHERE root_id @in($1))",
            "DELETE FROM agent_run WHERE root_id @in($1)",
        ] {
            conn.execute(delete, roots.clone()).await?;
        }
        for snapshot in snapshots {
            // The row is locked before it is read, so that the next statement sees a run created meanwhile. If a run is
            // being created with this snapshot now, the snapshot is deleted together with that run later.
            let lock = "SELECT hash FROM agent_snapshot WHERE hash = $1 @postgres(FOR UPDATE SKIP LOCKED)";
            if conn.exists(lock, values![&snapshot]).await? {
                self.drop_unused(conn, [snapshot]).await?;
            }
        }
        Ok(true)
    }

    /// Deletes threads that have been inactive for this long and have no runs left; their lines were deleted with their
    /// runs. True if there may be more.
    pub(crate) async fn prune_threads(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        // Skips a thread that is currently being written to.
        let prunable = sql!(
            "SELECT id FROM thread WHERE updated_at <= @now - $1 \
             AND NOT EXISTS (SELECT 1 FROM agent_run WHERE thread_id = thread.id) \
             ORDER BY updated_at LIMIT {THREADS_AT_ONCE} @postgres(FOR UPDATE SKIP LOCKED)"
        );
        let threads: Vec<ThreadId> = conn.all(prunable, values![kept]).await?;
        let may_be_more = threads.len() == THREADS_AT_ONCE;
        conn.execute("DELETE FROM thread WHERE id @in($1)", vec![Value::list(threads)])
            .await?;
        Ok(may_be_more)
    }
}
