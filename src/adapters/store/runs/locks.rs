//! What a transaction locks before it writes: snapshots first, then runs, then projects.

use std::collections::{BTreeMap, BTreeSet};

use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::super::op::Op;
use super::op::RunOp;
use super::values::{each, many};
use crate::ports::commit::{Commit, Writer};

impl Batch<'_> {
    /// Stores the definition snapshots of all runs to be created. All writers use one order, before any other lock, so
    /// that no deadlock is possible. Returns the new snapshots.
    pub(in super::super) async fn keep_snapshots<'a>(
        &self,
        conn: &mut Conn,
        ops: impl Iterator<Item = &'a Op>,
    ) -> Result<Vec<Value>, Fault> {
        let mut snapshots = BTreeMap::new();
        for op in ops {
            if let Op::Run(op) = op
                && let RunOp::Create(run) = &**op
            {
                snapshots.insert(&run.snapshot.hash, &run.snapshot.text);
            }
        }
        let mut new = Vec::new();
        for (hash, text) in snapshots {
            let values = vec![Value::shared(hash), Value::shared(text)];
            if conn.execute(&self.texts().snapshot, values).await? == 1 {
                new.push(Value::shared(hash));
            } else if let Some(hold) = &self.texts().hold_snapshot
                && conn.first(hold, vec![Value::shared(hash)]).await?.is_none()
            {
                return Err(Fault::Unavailable("a snapshot was deleted concurrently".into()));
            }
        }
        Ok(new)
    }

    /// Deletes those of these snapshots that no run uses.
    pub(in super::super) async fn drop_unused(&self, conn: &mut Conn, snapshots: Vec<Value>) -> Result<(), Fault> {
        for snapshot in snapshots {
            conn.execute(&self.texts().prune_snapshot, vec![snapshot]).await?;
        }
        Ok(())
    }

    /// Locks every run and project that the ops depend on. All writers use one order, so that no deadlock is possible.
    /// On SQLite the transaction itself is the only lock.
    pub(in super::super) async fn lock_runs<'a>(
        &self,
        conn: &mut Conn,
        ops: impl Iterator<Item = &'a Op>,
    ) -> Result<(), Fault> {
        let (Some(lock), Some(lock_project)) = (&self.texts().lock, &self.texts().lock_project) else {
            return Ok(());
        };
        let (mut runs, mut projects) = (BTreeSet::new(), BTreeSet::new());
        for op in ops {
            match op {
                Op::Run(op) => {
                    op.locks(&mut runs);
                    projects.extend(op.project());
                }
                Op::Commit(Commit {
                    writer: Writer::Holder { lease, .. },
                    ..
                }) => drop(runs.insert(lease.run)),
                _ => {}
            }
        }
        let runs: Vec<_> = runs.into_iter().collect();
        for runs in many(&runs) {
            each(conn, lock, runs, |_| Ok(())).await?;
        }
        for (tenant, project) in projects {
            let values = vec![Value::text(tenant), Value::text(project)];
            each(conn, lock_project, values, |_| Ok(())).await?;
        }
        Ok(())
    }
}
