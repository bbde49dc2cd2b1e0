//! The leases of runs: taken, held, renewed, returned.

use std::collections::BTreeSet;

use serde::Deserialize;
use uuid::Uuid;

use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use super::FIRST_OF_THREAD;
use crate::domain::ids::RunId;
use crate::ports::runs::{Lease, MOST_CLAIMS, MOST_TAKES, Renewed};
use crate::queue::Batch;

/// A run below a root whose lease this process holds.
///
/// root, fence, holder, run. After a release the last holder keeps its rights until another process takes the run. So
/// pending writes, above all the run's end, are not lost.
pub(super) const HELD: &str = "SELECT (SELECT COALESCE(MAX(position), 0) FROM agent_run_entry WHERE root_id = $1) AS last, \
     root.takes > 0 AS counts_lost FROM agent_run root JOIN agent_run run ON run.root_id = root.id WHERE root.id = $1 \
     AND root.fence = $2 AND (root.holder = $3 OR root.holder IS NULL) AND run.id = $4";

#[derive(Deserialize)]
pub(crate) struct Held {
    /// The last position in the event log.
    pub(crate) last: u64,
    /// Whether processes count as lost.
    pub(crate) counts_lost: bool,
}

impl Batch<'_> {
    /// `None` if the lease is not held, or the run under it is not running anymore.
    pub(crate) async fn holds(&self, conn: &mut Conn, lease: Lease, run: RunId) -> Result<Option<Held>, Fault> {
        // A child run may still be marked as awaiting approval when only the outermost run was taken.
        let holds = sql!(
            "{HELD} AND root.status = 'running' AND (run.status = 'running' \
             OR (run.status = 'awaiting_confirmation' AND run.id <> root.id))"
        );
        let values = values![lease.run, lease.fence, self.writing.owner.clone(), run];
        Ok(conn.one(holds, values).await?)
    }

    pub(crate) async fn take(&self, conn: &mut Conn, run: RunId, lease: Uuid) -> Result<Option<Lease>, Fault> {
        // PostgreSQL skips a locked row and does not wait for it.
        let take = sql!(
            "UPDATE agent_run SET status = 'running', holder = $2, lease_id = $3, lease_until = @now + $4, \
             fence = fence + 1, takes = CASE WHEN holder = $2 THEN takes ELSE takes + 1 END, \
             started_at = COALESCE(started_at, @now) WHERE id = (SELECT id FROM agent_run WHERE id = $1 \
             AND parent_run_id IS NULL AND (status = 'queued' OR (status = 'running' AND lease_until <= @now)) \
             AND (status <> 'queued' OR {FIRST_OF_THREAD}) AND (takes < {MOST_CLAIMS} OR holder = $2) \
             @postgres(FOR UPDATE SKIP LOCKED)) RETURNING fence"
        );
        let values = values![run, self.writing.owner.clone(), lease, self.run_lease];
        let mut fence = conn.one(take, values).await?;
        if fence.is_none() {
            // This process may have taken it, in a commit that was not acknowledged.
            let taken = "SELECT fence FROM agent_run WHERE id = $1 AND lease_id = $2 AND status = 'running'";
            fence = conn.one(taken, values![run, lease]).await?;
        }
        Ok(fence.map(|fence| Lease { run, fence }))
    }

    pub(crate) async fn renew(&self, conn: &mut Conn, leases: &[Lease]) -> Result<Renewed, Fault> {
        #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
        struct Row {
            id: RunId,
            fence: i64,
        }
        let runs: BTreeSet<_> = leases.iter().map(|lease| lease.run).collect();
        let runs = Value::list(runs);
        // The runs that the holder holds, or held when they ended. A clock that was set back or a machine that slept
        // adds no more than one lease.
        let renew = "UPDATE agent_run SET worked_us = worked_us + CASE WHEN status <> 'running' OR lease_until IS NULL \
                     OR lease_until > @now + $1 THEN 0 WHEN lease_until < @now THEN $1 \
                     ELSE @now + $1 - lease_until END, \
                     lease_until = CASE WHEN status = 'running' THEN @now + $1 END \
                     WHERE holder = $2 AND id @in($3) RETURNING id, fence";
        let values = values![self.run_lease, self.writing.owner.clone(), runs.clone()];
        let held: BTreeSet<Row> = conn.all(renew, values).await?.into_iter().collect();
        let cancelled = "SELECT run.id FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
                         WHERE run.root_id @in($1) AND run.status = 'running' \
                         AND (run.cancel_requested OR root.cancel_requested) ORDER BY run.id";
        let is_held = |lease: &Lease| {
            held.contains(&Row {
                id: lease.run,
                fence: lease.fence,
            })
        };
        Ok(Renewed {
            cancelled: conn.all(cancelled, vec![runs]).await?,
            lost: leases.iter().copied().filter(|lease| !is_held(lease)).collect(),
        })
    }

    pub(crate) async fn release(&self, conn: &mut Conn, leases: &[Lease]) -> Result<(), Fault> {
        let release = sql!(
            "UPDATE agent_run SET lease_until = @now, holder = NULL, \
             takes = CASE WHEN takes > {MOST_TAKES} THEN takes ELSE 0 END WHERE id = $1 AND fence = $2 AND holder = $3 \
             AND status = 'running'"
        );
        for lease in leases {
            let values = values![lease.run, lease.fence, self.writing.owner.clone()];
            conn.execute(release, values).await?;
        }
        Ok(())
    }
}
