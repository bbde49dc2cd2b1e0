//! Agents' runs: port [`Runs`]. Ops here and in `end` write in the writer's transaction, after `lock` has locked what
//! they depend on. `read` reads, on connections that analysts do not use.
//!
//! Only holder and fence decide who holds the lease. An expired or released lease is lost when another process takes
//! the run, and not before, so a delayed process loses no work. A holder whose append is not acknowledged in time
//! treats the run as lost. Whether or not the append was written, the next worker reads the journal as it is.

mod end;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use uuid::Uuid;

use super::claims::StoredClaim;
use super::config::ContentMode;
use super::db::{Conn, Dialect, Value, sql, values};
use super::decisions::{DECISION, DECISIONS};
use super::error::{Fault, describe, unavailable};
use super::op::{Locks, Op};
use super::queue::Batch;
use super::read::{OF_USER, RUNS, Term};
use super::table::{Column, Insert, Table};
use crate::Store;
use crate::api::runs::{AgentRun, InDoubtCall};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::ids::{ProjectId, RunId, TenantId, UserId};
use crate::domain::templates::Text;
use crate::ports::claims::{Claim, Claimed};
use crate::ports::commit::RunEnd;
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};
use crate::ports::runs::{
    Lease, LoggedEntry, MOST_CLAIMS, MOST_TAKES, NewRun, Parent, Renewed, Reopen, RunState, Runs, Started, StoredEntry,
    StoredRun, Turn, Waiting,
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

#[async_trait]
impl Runs for Store {
    fn lease_length(&self) -> Duration {
        self.shared.config.run_lease
    }

    async fn create(&self, run: NewRun) -> Result<Started, RecordError> {
        self.write(Op::CreateRun(Box::new(run))).await
    }

    async fn reopen(&self, run: Reopen) -> Result<Started, RecordError> {
        self.write(Op::ReopenRun(Box::new(run), Uuid::now_v7())).await
    }

    async fn take(&self, run: RunId) -> Result<Option<Lease>, RecordError> {
        self.write(Op::TakeRun(run, Uuid::now_v7())).await
    }

    async fn renew(&self, leases: Vec<Lease>) -> Result<Renewed, RecordError> {
        self.write(Op::RenewRuns(leases)).await
    }

    async fn release(&self, leases: Vec<Lease>) -> Result<(), RecordError> {
        self.write(Op::ReleaseRuns(leases)).await
    }

    async fn cancel(&self, run: RunId, by: &str) -> Result<(), RecordError> {
        self.write(Op::CancelRun(run, by.into())).await
    }

    async fn give_up(&self, most: u32) -> Result<Vec<RunId>, RecordError> {
        let lost = self
            .working
            .all(read::lost(), values![self.shared.writing.owner.clone(), most]);
        let lost: Vec<RunId> = lost.await.map_err(unavailable)?;
        if !lost.is_empty() {
            self.write::<()>(Op::GiveUpRuns(lost.clone())).await?;
        }
        Ok(lost)
    }

    async fn waiting(&self, turn: Turn<'_>, takes: u32) -> Result<Option<Waiting>, RecordError> {
        let values = match turn {
            Turn::Tenant(after) => values![takes, after],
            Turn::User(tenant, after) => values![takes, tenant, after],
        };
        self.working.one(read::waiting(turn), values).await.map_err(unavailable)
    }

    async fn claimed(&self, claim: &Claim) -> Result<Option<Claimed>, QueryError> {
        let found: Option<StoredClaim> = self.working.one(StoredClaim::select(), values![&claim.scope]).await?;
        let found = found.map(|stored| stored.found(claim, None)).transpose();
        found.map_err(|error| QueryError::Unavailable(describe(&error).into()))
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>, QueryError> {
        let sql = sql!(
            "SELECT {}, run.id, run.project_id AS project, run.agent_id AS agent, run.version, run.input, \
             run.settings, run.cancel_requested OR root.cancel_requested AS cancel, \
             run.fence - run.reopened_fence AS takes, run.takes > {MOST_TAKES} AS is_lost, run.worked_us AS worked, \
             run.started_at, snapshot.hash AS \"snapshot.hash\", snapshot.text AS \"snapshot.text\", {} \
             FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
             JOIN agent_snapshot snapshot ON snapshot.hash = run.snapshot_hash \
             JOIN decision_log decision ON decision.id = run.id WHERE run.id = $1",
            read::state(),
            DECISION.selected_beginning("decision", "decision")
        );
        let mut found: Option<StoredRun> = self.working.one(sql, values![run]).await?;
        // A hash is no message.
        if let (Some(run), false) = (&mut found, matches!(self.shared.writing.content, ContentMode::Full)) {
            run.decision.message = "".into();
        }
        Ok(found)
    }

    async fn run_state(&self, run: RunId) -> Result<Option<RunState>, QueryError> {
        let sql = sql!("SELECT {} FROM agent_run run WHERE run.id = $1", read::state());
        self.working.one(sql, values![run]).await
    }

    async fn is_cancelled(&self, run: RunId) -> Result<bool, QueryError> {
        let found: Option<i64> = self.working.one(CANCELLED, values![run]).await?;
        Ok(found.is_some())
    }

    async fn journal(&self, run: RunId, after: u64, most: u32) -> Result<Vec<StoredEntry>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM agent_run_entry WHERE run_id = $1 AND number > $2 ORDER BY number LIMIT $3",
            ENTRY.selected()
        );

        let entries: Vec<LoggedEntry> = self.working.all(sql, values![run, after, most]).await?;
        Ok(entries.into_iter().map(|logged| logged.entry).collect())
    }

    async fn events(&self, run: RunId, after: u64, most: u32, bytes: usize) -> Result<Vec<LoggedEntry>, QueryError> {
        self.working
            .some(read::events(), values![run, after, most], bytes)
            .await
    }

    async fn get(&self, tenant: &TenantId, user: Option<&UserId>, run: RunId) -> Result<Option<AgentRun>, QueryError> {
        let sql = sql!("SELECT {} FROM agent_run WHERE id = $1 AND {OF_USER}", RUN.selected());
        self.working.one(sql, values![run, tenant, user]).await
    }

    async fn list(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        query: &ListQuery,
    ) -> Result<Page<AgentRun>, QueryError> {
        let project = Term::text("project_id", project);
        self.reading.page(&RUNS, tenant, vec![project], query).await
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

/// A run that begins.
pub(super) struct Beginning {
    run: NewRun,
    status: RunStatus,
    created_at: i64,
    /// The lease of a run that this process works on.
    lease: Option<Duration>,
}

impl Beginning {
    fn parent(&self) -> Option<&Parent> {
        self.run.origin.parent()
    }

    /// The fence, and how many processes have taken it.
    fn fence(&self) -> Value {
        i64::from(self.lease.is_some()).into()
    }
}

type Run = Column<Beginning, RunEnd>;

/// The columns of `agent_run`. `lease_until` of a queued run says since when it waits; the lease of an outermost run covers
/// those below it.
#[rustfmt::skip] // A line for each.
pub(super) static RUN: Table<Beginning, RunEnd> = Table { name: "agent_run", columns: &[
    Run::open("id", |new, _| new.run.id.into()).shown().named("run_id"),
    Run::open("root_id", |new, _| new.parent().map_or(new.run.id, |parent| parent.lease.run).into())
        .viewed("The outermost run.")
        .named("outermost_run_id"),
    Run::open("project_id", |new, _| (&new.run.project).into()).shown(),
    Run::open("agent_id", |new, _| (&new.run.agent).into()).shown(),
    Run::both("status", |new, _| new.status.as_str().into(), |end, _| end.status.as_str().into())
        .shown(),
    Run::open("user_id", |new, _| (&new.run.decision.user).into()).viewed("The acting user."),
    Run::open("parent_run_id", |new, _| new.parent().map(|parent| parent.run).into()).shown(),
    Run::open("parent_action_id", |new, _| new.parent().map(|parent| parent.action).into()),
    Run::open("tenant", |new, _| (&new.run.decision.tenant).into()).viewed("The tenant."),
    Run::open("version", |new, _| new.run.version.into()).shown_as("definition_version"),
    Run::open("definition_hash", |new, _| (&new.run.decision.definition_hash).into()).shown(),
    Run::open("snapshot_hash", |new, _| (&new.run.snapshot.hash).into()),
    Run::open("input", |new, _| (&*new.run.input).into()),
    Run::open("settings", |new, _| (&*new.run.settings).into()),
    Run::open("holder", |new, with| new.lease.map_or(Value::Text(None), |_| with.owner.clone())),
    Run::derived("lease_until", "@now + CAST(? AS BIGINT)", |new, _| match new.parent() {
        Some(_) => Value::Int(None),
        None => new.lease.unwrap_or_default().into(),
    }).closed("NULL"),
    Run::open("fence", |new, _| new.fence()),
    Run::open("takes", |new, _| new.fence()),
    Run::open("thread_id", |new, _| new.run.origin.thread().map(|place| place.thread).into())
        .viewed("The thread that it belongs to, if any."),
    Run::open("session_id", |new, _| new.run.origin.session().map(|place| place.session).into())
        .viewed("The planning session that it works for, if any."),
    Run::close("stop_reason", |end, _| end.stop_reason.map(StopReason::as_str).into()).shown(),
    Run::open("created_at", |new, _| new.created_at.into()).shown(),
    Run::open("started_at", |new, _| (new.status == RunStatus::Running).then_some(new.created_at).into()).shown(),
    Run::close("completed_at", |end, _| end.completed_at.into()).shown(),
    // 0 if the clock was set back.
    Run::elsewhere("CASE WHEN completed_at < started_at THEN 0 ELSE (completed_at - started_at) / 1000 END")
        .shown_as("duration_ms"),
    Run::close("summary", |end, _| end.summary.as_ref().into()).shown().content(),
    Run::close("output", |end, _| end.output.as_deref().into()).shown().content(),
    Run::close("error_message", |end, _| end.error_message.as_ref().into()).shown().content(),
    Run::close("recovered_from", |end, _| end.recovered_from.map(StopReason::as_str).into()).shown(),
    Run::close("in_doubt", |end, _| in_doubt(&end.in_doubt)).shown(),
    Run::elsewhere("attempts").shown(),
    Run::both("steps", |_, _| 0_u32.into(), |end, _| end.steps.into()).shown(),
    Run::both("input_tokens", |_, _| 0_u32.into(), |end, _| end.usage.input_tokens.into())
        .shown_as("usage.input_tokens"),
    Run::both("output_tokens", |_, _| 0_u32.into(), |end, _| end.usage.output_tokens.into())
        .shown_as("usage.output_tokens"),
    Run::both("thought_tokens", |_, _| 0_u32.into(), |end, _| end.usage.thought_tokens.into())
        .shown_as("usage.thought_tokens"),
    Run::both("cached_tokens", |_, _| 0_u32.into(), |end, _| end.usage.cached_tokens.into())
        .shown_as("usage.cached_tokens"),
    Run::elsewhere("(SELECT decision.outcome_category FROM decision_log decision WHERE decision.id = agent_run.id)")
        .shown_as("outcome_category"),
] };

/// In-doubt calls as a row stores them.
pub(super) fn in_doubt(calls: &[InDoubtCall]) -> Value {
    match calls {
        [] => Value::Text(None),
        calls => Value::json(calls),
    }
}

/// An entry, with the outermost run whose events it belongs to.
type Entered = (RunId, LoggedEntry);

type Entry = Column<Entered>;

/// The columns of `agent_run_entry`.
#[rustfmt::skip] // A line for each.
static ENTRY: Table<Entered> = Table { name: "agent_run_entry", columns: &[
    Entry::open("root_id", |(root, _), _| (*root).into()),
    Entry::open("position", |(_, logged), _| logged.position.into()).shown(),
    Entry::open("run_id", |(_, logged), _| logged.run.into()).shown_as("run"),
    Entry::open("number", |(_, logged), _| logged.entry.number.into()).shown_as("entry.number"),
    Entry::open("created_at", |(_, logged), _| logged.entry.at_us.into()).shown_as("entry.at_us"),
    Entry::open("elapsed_us", |(_, logged), _| logged.entry.elapsed_us.into()).shown_as("entry.elapsed_us"),
    Entry::open("body", |(_, logged), _| (&logged.entry.body).into()).shown_as("entry.body"),
] };

/// A run below a root whose lease this process holds.
///
/// root, fence, holder, run. After a release the last holder keeps its rights until another process takes the run. So
/// pending writes, above all the run's end, are not lost.
const HELD: &str = "SELECT (SELECT COALESCE(MAX(position), 0) FROM agent_run_entry WHERE root_id = $1) AS last, \
     root.takes > 0 AS counts_lost FROM agent_run root JOIN agent_run run ON run.root_id = root.id WHERE root.id = $1 \
     AND root.fence = $2 AND (root.holder = $3 OR root.holder IS NULL) AND run.id = $4";

#[derive(Deserialize)]
pub(super) struct Held {
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
        let values = values![run, self.writing.owner.clone(), lease, self.config.run_lease];
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
        let values = values![self.config.run_lease, self.writing.owner.clone(), runs.clone()];
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

impl Batch<'_> {
    pub(crate) async fn create(&self, conn: &mut Conn, run: &NewRun) -> Result<Started, Fault> {
        let parent = run.origin.parent();
        let mut queued = run.queued && parent.is_none();
        let mut last = 0;
        let mut lease = match parent {
            None => (!queued).then_some(Lease { run: run.id, fence: 1 }),
            Some(parent) => {
                let Some(held) = self.holds(conn, parent.lease, parent.run).await? else {
                    return Ok(Started::LeaseLost);
                };
                last = held.last;
                let called = "SELECT id FROM agent_run WHERE parent_run_id = $1 AND parent_action_id = $2";
                if let Some(there) = conn.one(called, values![parent.run, parent.action]).await? {
                    return Ok(match there == run.id {
                        true => Started::Now(Some(parent.lease)),
                        false => Started::Before(there),
                    });
                }
                Some(parent.lease)
            }
        };
        if let Some(claim) = &run.claim {
            let id = run.id.to_string();
            match self.claim(conn, claim, &id, Some(&id)).await? {
                Claimed::New => {}
                Claimed::Run(run) => return Ok(Started::Before(run)),
                // The scope names the route, so no chat request has claimed it.
                Claimed::Mismatch | Claimed::Running | Claimed::Answered(_) => return Ok(Started::Mismatch),
            }
        }
        let mut created_at = run.decision.created_at;
        let mut refused = None;
        if let Some(place) = run.origin.thread() {
            match self.enter_thread(conn, run, place).await? {
                Ok(None) => {}
                // The run waits its turn, even if a caller waits for it.
                Ok(Some(at)) => (queued, lease, created_at) = (true, None, at),
                Err(why) => refused = Some(why),
            }
        }
        if let Some(place) = run.origin.session() {
            refused = self.enter_session(conn, run, place).await?;
        }
        if let Some(refused) = refused {
            // Nothing was created, so the key can be claimed again.
            if let Some(claim) = &run.claim {
                self.release_claim(conn, &claim.scope, run.id).await?;
            }
            return Ok(refused);
        }
        let owned = self.writing.owned_by(run.id);
        DECISIONS.open(conn, &run.decision, &owned).await?;
        let created = self.insert_run(conn, run, queued, created_at).await?;
        // An earlier commit of the same op, whose acknowledgement was lost, has written the entries too.
        if let Some(lease) = lease
            && created
        {
            self.enter(conn, lease.run, run.id, last, &run.entries).await?;
        }
        Ok(Started::Now(lease))
    }

    /// False: the run exists, since an earlier commit of the same op was not acknowledged.
    async fn insert_run(&self, conn: &mut Conn, run: &NewRun, queued: bool, created_at: i64) -> Result<bool, Fault> {
        static CREATE: LazyLock<Insert> = LazyLock::new(|| RUN.inserts("ON CONFLICT (id) DO NOTHING"));
        let beginning = Beginning {
            // The caller of a child run works on it at once.
            status: match queued {
                true => RunStatus::Queued,
                false => RunStatus::Running,
            },
            created_at,
            lease: (!queued && run.origin.parent().is_none()).then_some(self.config.run_lease),
            run: run.clone(),
        };
        Ok(CREATE.run(conn, RUN.begin(&beginning, self.writing)).await? > 0)
    }

    pub(crate) async fn abandon_run(&self, conn: &mut Conn, run: RunId, scope: Option<&Arc<str>>) -> Result<(), Fault> {
        let abandon = "UPDATE agent_run SET status = 'failed', completed_at = @now, lease_until = NULL, \
                       error_message = 'not begun: its record was not acknowledged in time' \
                       WHERE id = $1 AND lease_id IS NULL \
                       AND (status = 'queued' OR (status = 'running' AND fence = 1 AND holder = $2))";
        // No row: it was not created, or a worker has taken it.
        if conn.execute(abandon, values![run, self.writing.owner.clone()]).await? == 0 {
            return Ok(());
        }
        self.close_unbegun(conn, run.decision(), &run.into()).await?;
        if let Some(scope) = scope {
            self.release_claim(conn, scope, run).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
