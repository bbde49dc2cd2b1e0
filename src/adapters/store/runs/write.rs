//! Executes one op of runs, definitions or planning sessions within the transaction of its batch.

use super::super::batch::Batch;
use super::super::db::Conn;
use super::super::error::Fault;
use super::op::{RunDone, RunOp};
use super::statements::RunStatements;
use super::values::{id, int};

impl Batch<'_> {
    pub(in super::super) async fn write_run(&self, conn: &mut Conn, op: &RunOp) -> Result<RunDone, Fault> {
        Ok(match op {
            RunOp::Create(run) => RunDone::Created(self.create(conn, run).await?),
            RunOp::Reopen(run, request) => RunDone::Reopened(self.reopen(conn, run, *request).await?),
            RunOp::Abandon(abandoned) => {
                self.abandon_run(conn, abandoned).await?;
                RunDone::Written
            }
            RunOp::Take(run, lease) => RunDone::Taken(self.take(conn, *run, *lease).await?),
            RunOp::Resolve(resolve) => RunDone::Resolved(self.resolve(conn, resolve).await?),
            RunOp::Settle(settle) => RunDone::Settled(self.settle(conn, settle).await?),
            RunOp::Expire(roots) => {
                for root in roots {
                    self.expire_actions(conn, *root).await?;
                }
                RunDone::Written
            }
            RunOp::GiveUp(roots) => {
                for root in roots {
                    self.give_up(conn, *root).await?;
                }
                RunDone::Written
            }
            RunOp::Revoke(revoke) => RunDone::Revoked(self.revoke(conn, revoke).await?),
            RunOp::Renew(leases) => RunDone::Renewed(self.renew(conn, leases).await?),
            RunOp::Release(leases) => {
                for lease in leases {
                    let values = vec![id(lease.run), int(lease.fence), self.writing.owner.clone()];
                    conn.execute(&self.texts().release, values).await?;
                }
                RunDone::Written
            }
            RunOp::Cancel(run, by) => {
                self.cancel(conn, *run, by).await?;
                RunDone::Written
            }
            RunOp::Define(version, id) => RunDone::Put(self.define(conn, version, *id).await?),
            RunOp::Planning(op) => self.write_planning(conn, op).await?,
        })
    }

    pub(super) fn texts(&self) -> &RunStatements {
        &self.statements.runs
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
