//! What a transaction locks before it writes: snapshots first, then the start of planning sessions, then planning
//! sessions, then runs, then projects. All writers use this order, so that no deadlock is possible.
//! Sessions come before runs, since a session's row names the run that a cancellation or a sweep changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::batch::Batch;
use super::super::db::{Conn, Dialect, Value, values};
use super::super::error::Fault;
use super::super::op::{Locks, Op};
use crate::domain::ids::RunId;

impl Batch<'_> {
    /// Stores the definition snapshots of all runs to be created. Returns the new snapshots.
    pub(crate) async fn keep_snapshots<'a>(
        &self,
        conn: &mut Conn,
        ops: impl Iterator<Item = &'a Op>,
    ) -> Result<Vec<Arc<str>>, Fault> {
        let snapshots: BTreeMap<_, _> = ops
            .filter_map(|op| match op {
                Op::CreateRun(run) => Some((&run.snapshot.hash, &run.snapshot.text)),
                _ => None,
            })
            .collect();
        let mut new = Vec::new();
        for (hash, text) in snapshots {
            let insert = "INSERT INTO agent_snapshot (hash, text) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING";
            // Keeps it from being deleted until this transaction ends.
            let hold = "SELECT hash FROM agent_snapshot WHERE hash = $1 @postgres(FOR KEY SHARE)";
            if conn.execute(insert, values![hash, text]).await? == 1 {
                new.push(Arc::clone(hash));
            } else if !conn.exists(hold, values![hash]).await? {
                return Err(Fault::Unavailable("a snapshot was deleted concurrently".into()));
            }
        }
        Ok(new)
    }

    /// Deletes those of these snapshots that no run uses.
    pub(crate) async fn drop_unused(
        &self,
        conn: &mut Conn,
        snapshots: impl IntoIterator<Item = Arc<str>>,
    ) -> Result<(), Fault> {
        let delete = "DELETE FROM agent_snapshot WHERE hash = $1 \
                      AND NOT EXISTS (SELECT 1 FROM agent_run WHERE snapshot_hash = $1)";
        for snapshot in snapshots {
            conn.execute(delete, values![&snapshot]).await?;
        }
        Ok(())
    }

    /// Locks every planning session, run and project that the ops depend on. On SQLite the transaction itself is the only
    /// lock.
    pub(crate) async fn lock<'a>(&self, conn: &mut Conn, ops: impl Iterator<Item = &'a Op>) -> Result<(), Fault> {
        if conn.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let mut locks = Locks::default();
        for op in ops {
            op.locks(&mut locks);
        }
        // Runs that begin in sessions wait for each other, so that none of them counts what another one adds too late.
        if locks.starts_session {
            let lock = "SELECT pg_advisory_xact_lock(hashtextextended('planning_session', 0))";
            conn.execute(lock, vec![]).await?;
        }
        for session in locks.sessions {
            let lock = "SELECT id FROM planning_session WHERE id = $1 FOR UPDATE";
            conn.execute(lock, values![session]).await?;
        }
        // The run of a locked session remains its run, and a run's outermost run never changes.
        for session in locks.runs_of {
            let run = "SELECT run_id FROM planning_session WHERE id = $1";
            locks.runs.extend(conn.one::<RunId>(run, values![session]).await?);
        }
        for run in locks.below {
            let root = "SELECT root_id FROM agent_run WHERE id = $1";
            locks.runs.extend(conn.one::<RunId>(root, values![run]).await?);
        }
        if !locks.runs.is_empty() {
            let lock = "SELECT id FROM agent_run WHERE id @in($1) ORDER BY id FOR UPDATE";
            conn.execute(lock, vec![Value::list(locks.runs)]).await?;
        }
        for (tenant, project) in locks.projects {
            let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 0))";
            conn.execute(lock, values![tenant, project]).await?;
        }
        Ok(())
    }
}
