//! What a transaction locks before it writes: snapshots first, then the start of planning sessions, then planning
//! sessions, then runs, then projects.
//! Sessions come before runs, since a session's row names the run that a cancellation or a sweep changes.

use std::collections::{BTreeMap, BTreeSet};

use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::super::op::Op;
use super::op::RunOp;
use super::values::{each, id, many, parse};
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::ports::commit::{Commit, Fact, Writer};

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

    /// Locks every planning session, run and project that the ops depend on. All writers use one order, so that no
    /// deadlock is possible.
    /// On SQLite the transaction itself is the only lock.
    pub(in super::super) async fn lock_runs<'a>(
        &self,
        conn: &mut Conn,
        ops: impl Iterator<Item = &'a Op>,
    ) -> Result<(), Fault> {
        let (Some(lock), Some(lock_project)) = (&self.texts().lock, &self.texts().lock_project) else {
            return Ok(());
        };
        let planning = &self.statements.planning;
        let (mut runs, mut sessions, mut projects) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut starts = false;
        let (mut cancelled, mut of_sessions) = (BTreeSet::new(), BTreeSet::<PlanningSessionId>::new());
        for op in ops {
            match op {
                Op::Run(op) => {
                    starts |= op.starts_session();
                    op.locks(&mut runs);
                    op.locks_sessions(&mut sessions);
                    projects.extend(op.project());
                    cancelled.extend(op.cancels());
                    of_sessions.extend(op.sessions_of_runs());
                }
                Op::Commit(Commit {
                    writer: Writer::Holder { lease, .. },
                    facts,
                    ..
                }) => {
                    runs.insert(lease.run);
                    sessions.extend(facts.iter().filter_map(|fact| match fact {
                        Fact::Planned(session, _) | Fact::Worked(session, _) => Some(*session),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
        if let Some(lock) = planning.lock_starts.as_ref().filter(|_| starts) {
            each(conn, lock, vec![], |_| Ok(())).await?;
        }
        if let Some(lock) = &planning.lock {
            for session in sessions {
                each(conn, lock, vec![id(session)], |_| Ok(())).await?;
            }
        }
        // The run of a locked session remains its run, and a run's outermost run never changes.
        let of_sessions = of_sessions.into_iter().map(|session| (&planning.run_of, id(session)));
        let outermost = cancelled.into_iter().map(|run| (&self.texts().root_of, id(run)));
        for (of, value) in of_sessions.chain(outermost) {
            if let Some(row) = conn.first(of, vec![value]).await? {
                runs.insert(parse(&row.text(0)?, RunId::parse)?);
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
