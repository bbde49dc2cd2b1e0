//! Agents' runs: port [`Runs`]. `columns` are their columns, `create`, `lease`, `reopen`, `end` and `prune` write ops in the
//! writer's transaction, `journal` and `end` the facts of a commit, after `locks` has locked what they depend on. `read`
//! reads, on connections that analysts do not use.
//!
//! Only holder and fence decide who holds the lease. An expired or released lease is lost when another process takes
//! the run, and not before, so a delayed process loses no work. A holder whose append is not acknowledged in time
//! treats the run as lost. Whether or not the append was written, the next worker reads the journal as it is.

mod columns;
mod create;
mod end;
mod lease;
mod read;
mod reopen;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use uuid::Uuid;

use self::columns::ENTRY;
pub(super) use self::columns::{RUN, in_doubt};
use super::claims::StoredClaim;
use super::db::{Conn, Dialect, Value, sql, values};
use super::error::{Fault, describe, unavailable};
use super::op::{Locks, Op};
use super::queue::Batch;
use crate::Store;
use crate::api::runs::AgentRun;
use crate::domain::ids::{ProjectId, RunId, TenantId, UserId};
use crate::domain::templates::Text;
use crate::ports::BoxFuture;
use crate::ports::claims::{Claim, Claimed};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};
use crate::ports::runs::{
    Created, Lease, LoggedEntry, MOST_CLAIMS, MOST_TAKES, NewRun, Renewed, Reopen, Reopened, RunState, Runs,
    StoredEntry, StoredRun, Turn, Waiting,
};

/// The message of a run that was given up.
static GIVEN_UP: LazyLock<String> = LazyLock::new(|| Text::ProcessLost.with(&[("many", &MOST_TAKES.to_string())]));

/// run: a row if it, or a run above it, was cancelled.
const CANCELLED: &str = "WITH RECURSIVE caller(id, parent, cancelled) AS (\
     SELECT id, parent_run_id, cancel_requested FROM agent_run WHERE id = $1 UNION ALL \
     SELECT run.id, run.parent_run_id, run.cancel_requested FROM agent_run run JOIN caller ON run.id = caller.parent) \
     SELECT 1 FROM caller WHERE cancelled";

/// Condition on a run: it is paused, or failed since its processes were lost.
const RESUMABLE: &str = "(status = 'paused' OR (status = 'failed' AND stop_reason = 'process_lost'))";

const IN_PROGRESS: &str = "status IN ('queued', 'running', 'awaiting_confirmation')";

/// Condition on a queued run: no other run of its thread is active, or queued before it. Runs of a thread run one at a
/// time, in order.
const FIRST_OF_THREAD: &str = "(thread_id IS NULL OR NOT EXISTS (SELECT 1 FROM agent_run other \
     WHERE other.thread_id = agent_run.thread_id AND other.id <> agent_run.id \
     AND (other.status = 'queued' OR other.status = 'running' OR other.status = 'awaiting_confirmation') \
     AND (other.status = 'running' OR other.status = 'awaiting_confirmation' OR (other.status = 'queued' \
     AND (other.created_at, other.id) < (agent_run.created_at, agent_run.id)))))";

/// Condition on a run: it was taken too often without being returned, and its lease has expired. `holder` is excluded:
/// that process is alive and still writes what it could not write.
fn taken_too_often(holder: &str) -> String {
    format!(
        "status = 'running' AND lease_until IS NOT NULL AND lease_until <= @now AND takes >= {MOST_CLAIMS} \
         AND holder <> {holder}"
    )
}

impl Runs for Store {
    fn lease_length(&self) -> Duration {
        self.shared.run_lease
    }

    fn create(&self, run: NewRun) -> BoxFuture<'_, Result<Created, RecordError>> {
        Box::pin(self.write(Op::CreateRun(Box::new(run))))
    }

    fn reopen(&self, run: Reopen) -> BoxFuture<'_, Result<Reopened, RecordError>> {
        Box::pin(self.write(Op::ReopenRun(Box::new(run), Uuid::now_v7())))
    }

    fn take(&self, run: RunId) -> BoxFuture<'_, Result<Option<Lease>, RecordError>> {
        Box::pin(self.write(Op::TakeRun(run, Uuid::now_v7())))
    }

    fn renew(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<Renewed, RecordError>> {
        Box::pin(self.write(Op::RenewRuns(leases)))
    }

    fn release(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(self.write(Op::ReleaseRuns(leases)))
    }

    fn cancel<'a>(&'a self, run: RunId, by: &'a str) -> BoxFuture<'a, Result<(), RecordError>> {
        Box::pin(self.write(Op::CancelRun(run, by.into())))
    }

    fn give_up(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>> {
        Box::pin(async move {
            let lost = self
                .working
                .all(read::lost(), values![self.shared.writing.owner.clone(), most]);
            let lost: Vec<RunId> = lost.await.map_err(unavailable)?;
            if !lost.is_empty() {
                self.write::<()>(Op::GiveUpRuns(lost.clone())).await?;
            }
            Ok(lost)
        })
    }

    fn waiting<'a>(&'a self, turn: Turn<'a>, takes: u32) -> BoxFuture<'a, Result<Option<Waiting>, RecordError>> {
        let values = match turn {
            Turn::Tenant(after) => values![takes, after],
            Turn::User(tenant, after) => values![takes, tenant, after],
        };
        Box::pin(async move { self.working.one(read::waiting(turn), values).await.map_err(unavailable) })
    }

    fn claimed<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Option<Claimed>, QueryError>> {
        Box::pin(async move {
            let found: Option<StoredClaim> = self.working.one(StoredClaim::select(), values![&claim.scope]).await?;
            let found = found.map(|stored| stored.found(claim, None)).transpose();
            found.map_err(|error| QueryError::Unavailable(describe(&error).into()))
        })
    }

    fn load(&self, run: RunId) -> BoxFuture<'_, Result<Option<StoredRun>, QueryError>> {
        Box::pin(self.stored_run(run))
    }

    fn run_state(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunState>, QueryError>> {
        let sql = sql!("SELECT {} FROM agent_run run WHERE run.id = $1", read::STATE);
        Box::pin(self.working.one(sql, values![run]))
    }

    fn is_cancelled(&self, run: RunId) -> BoxFuture<'_, Result<bool, QueryError>> {
        Box::pin(async move {
            let found: Option<i64> = self.working.one(CANCELLED, values![run]).await?;
            Ok(found.is_some())
        })
    }

    fn journal(&self, run: RunId, after: u64, most: u32) -> BoxFuture<'_, Result<Vec<StoredEntry>, QueryError>> {
        let sql = sql!(
            "SELECT {} FROM agent_run_entry WHERE run_id = $1 AND number > $2 ORDER BY number LIMIT $3",
            ENTRY.selected()
        );
        Box::pin(async move {
            let entries: Vec<LoggedEntry> = self.working.all(sql, values![run, after, most]).await?;
            Ok(entries.into_iter().map(|logged| logged.entry).collect())
        })
    }

    fn events(
        &self,
        run: RunId,
        after: u64,
        most: u32,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<LoggedEntry>, QueryError>> {
        Box::pin(self.logged(run, after, most, bytes))
    }

    fn get<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<AgentRun>, QueryError>> {
        Box::pin(self.working.run(tenant, user, run))
    }

    fn list<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<AgentRun>, QueryError>> {
        Box::pin(self.reading.runs(tenant, project, query))
    }
}

// What a transaction locks before it writes: snapshots first, then the start of planning sessions, then planning
// sessions, then runs, then projects. All writers use this order, so that no deadlock is possible.
// Sessions come before runs, since a session's row names the run that a cancellation or a sweep changes.

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
