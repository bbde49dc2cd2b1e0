//! Agents' runs: port [`Runs`]. `write` executes one op in the writer's transaction: it calls `create`, `lease`, `end`,
//! `prune` or `define`, which use the texts of `statements`. `journal` and `end` write the facts of a commit. `read`
//! reads, on connections that analysts do not use.
//!
//! Only holder and fence decide who holds the lease. An expired or released lease is lost when another process takes
//! the run, and not before, so a delayed process loses no work. A holder whose append is not acknowledged in time
//! treats the run as lost. Whether or not the append was written, the next worker reads the journal as it is.

mod create;
mod define;
mod end;
mod journal;
mod lease;
mod locks;
pub(super) mod op;
mod prune;
mod read;
mod reopen;
mod row;
mod statements;
mod values;
mod write;

pub(super) use op::{Abandoned, RunDone, RunOp};
pub(super) use row::{SHOWN, shown, usage};
pub(super) use statements::{RUN_ACTIVE, RunStatements};
pub(super) use values::{each, id, in_doubt, int, parse};

use std::time::Duration;

use uuid::Uuid;

use super::Store;
use super::op::{Done, Op};
use crate::domain::agent_run::AgentRun;
use crate::domain::ids::{ProjectId, RunId, TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::claims::{Claim, Claimed};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};
use crate::ports::runs::{
    Created, Lease, LoggedEntry, NewRun, Renewed, Reopen, Reopened, RunState, Runs, StoredEntry, StoredRun, Turn,
    Waiting,
};

impl Store {
    pub(super) async fn run(&self, what: &'static str, op: RunOp) -> Result<RunDone, RecordError> {
        match self.write(what, Op::Run(Box::new(op))).await? {
            Done::Run(done) => Ok(done),
            other => unreachable!("a run op must return Done::Run, not {other:?}"),
        }
    }
}

/// Extracts the answer that belongs to the op.
macro_rules! answer {
    ($done:expr, $answer:path) => {
        match $done {
            $answer(answer) => Ok(answer),
            other => unreachable!("the answer of another op: {other:?}"),
        }
    };
}
pub(super) use answer;

impl Runs for Store {
    fn lease_length(&self) -> Duration {
        self.shared.run_lease
    }

    fn create(&self, run: NewRun) -> BoxFuture<'_, Result<Created, RecordError>> {
        Box::pin(async move {
            answer!(
                self.run("create run", RunOp::Create(Box::new(run))).await?,
                RunDone::Created
            )
        })
    }

    fn reopen(&self, run: Reopen) -> BoxFuture<'_, Result<Reopened, RecordError>> {
        let op = RunOp::Reopen(Box::new(run), Uuid::now_v7());
        Box::pin(async move { answer!(self.run("reopen run", op).await?, RunDone::Reopened) })
    }

    fn take(&self, run: RunId) -> BoxFuture<'_, Result<Option<Lease>, RecordError>> {
        let op = RunOp::Take(run, Uuid::now_v7());
        Box::pin(async move { answer!(self.run("take run", op).await?, RunDone::Taken) })
    }

    fn renew(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<Renewed, RecordError>> {
        Box::pin(async move { answer!(self.run("renew runs", RunOp::Renew(leases)).await?, RunDone::Renewed) })
    }

    fn release(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async move { self.run("release runs", RunOp::Release(leases)).await.map(drop) })
    }

    fn cancel<'a>(&'a self, run: RunId, by: &'a str) -> BoxFuture<'a, Result<(), RecordError>> {
        let op = RunOp::Cancel(run, by.into());
        Box::pin(async move { self.run("cancel run", op).await.map(drop) })
    }

    fn give_up(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>> {
        Box::pin(async move {
            let lost = self.lost_runs(most).await?;
            if !lost.is_empty() {
                self.run("give up runs", RunOp::GiveUp(lost.clone())).await?;
            }
            Ok(lost)
        })
    }

    fn waiting<'a>(&'a self, turn: Turn<'a>, takes: u32) -> BoxFuture<'a, Result<Option<Waiting>, RecordError>> {
        Box::pin(self.waiting_run(turn, takes))
    }

    fn claimed<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Option<Claimed>, QueryError>> {
        Box::pin(self.claim_found(claim))
    }

    fn load(&self, run: RunId) -> BoxFuture<'_, Result<Option<StoredRun>, QueryError>> {
        Box::pin(self.stored_run(run))
    }

    fn run_state(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunState>, QueryError>> {
        Box::pin(self.run_state_of(run))
    }

    fn is_cancelled(&self, run: RunId) -> BoxFuture<'_, Result<bool, QueryError>> {
        Box::pin(self.cancelled(run))
    }

    fn journal(&self, run: RunId, after: u64, most: u32) -> BoxFuture<'_, Result<Vec<StoredEntry>, QueryError>> {
        Box::pin(self.entries(run, after, most))
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
        Box::pin(self.shown_run(tenant, user, run))
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
