//! The end of a run, and of a pause: by its worker, with the run that called it, or by the store where no process returned it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::decisions::DECISION;
use super::super::error::Fault;
use super::{GIVEN_UP, HELD, IN_PROGRESS, RESUMABLE, RUN, in_doubt, taken_too_often};
use crate::api::runs::{Attempt, InDoubtCall};
use crate::config::ContentMode;
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus::{self, Cancelled, Completed, Failed, Paused};
use crate::domain::agent_run::StopReason;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::ids::{ActionId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::{MessageRole, completed_effects};
use crate::domain::time::rfc3339;
use crate::domain::tool::FailureCode;
use crate::ports::claims::Claimed;
use crate::ports::commit::RunEnd;
use crate::ports::runs::{Lease, Reopen, ReopenedFor, Settled, Started};
use crate::queue::Batch;
use crate::retention::OF;
use crate::transaction::{close, end_started};
use crate::transition::may_become_any;

impl Batch<'_> {
    /// Ends a run, and with an outermost run everything below it.
    pub(crate) async fn end_run(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        end: &RunEnd,
        acted: bool,
    ) -> Result<(), Fault> {
        let settled = self.settled_among(conn, lease.run, !end.in_doubt.is_empty()).await?;
        let mut end = end.clone();
        end.in_doubt.retain(|call| !settled.contains(&call.action_id));
        // The status is its first value.
        let finish = sql!(
            "UPDATE agent_run SET {} WHERE id = $1 AND started_at IS NOT NULL AND {}",
            RUN.ended(),
            may_become_any("$2", &[Completed, Failed, Cancelled, Paused])
        );
        let mut values = values![run];
        values.extend(RUN.end(&end, self.writing));
        conn.execute(finish, values).await?;
        if !acted {
            return Ok(());
        }
        self.close_requests(conn, run).await?;
        if run == lease.run {
            self.end_called(conn, run, end.completed_at).await?;
            self.doubt_actions(conn, run).await?;
        }
        Ok(())
    }

    /// Whether this process has ended the run so, in a commit that was not acknowledged.
    pub(crate) async fn has_ended(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        end: &RunEnd,
    ) -> Result<bool, Fault> {
        let ended = sql!("{HELD} AND run.status = $5 AND run.completed_at = $6");
        let (owner, status) = (self.writing.owner.clone(), end.status.as_str());
        let values = values![lease.run, lease.fence, owner, run, status, end.completed_at];
        Ok(conn.exists(ended, values).await?)
    }

    /// Ends the remaining child runs of an ended root run, based on their intents. No process can write their ends any
    /// more.
    async fn end_called(&self, conn: &mut Conn, root: RunId, completed_at: Option<i64>) -> Result<(), Fault> {
        let lock = sql!(
            "SELECT id FROM agent_run WHERE root_id = $1 AND parent_run_id IS NOT NULL AND {IN_PROGRESS} ORDER BY id \
             @postgres(FOR UPDATE)"
        );
        if conn.all::<RunId>(lock, values![root]).await?.is_empty() {
            return Ok(());
        }
        let end = sql!(
            "UPDATE agent_run SET status = 'failed', completed_at = $2, \
             error_message = 'the run that called it ended first' WHERE root_id = $1 AND id <> $1 AND {IN_PROGRESS}"
        );
        conn.execute(end, values![root, completed_at]).await?;
        for (run, calls) in self.started_calls(conn, root).await? {
            self.set_in_doubt(conn, run, &calls).await?;
        }
        let close = sql!(
            "{} WHERE status = 'open' AND id IN (SELECT id FROM agent_run WHERE root_id = $1 AND id <> $1)",
            close("the run that called it ended first")
        );
        conn.execute(close, values![root]).await?;
        self.mark_started_in_doubt(conn, root).await
    }

    async fn set_in_doubt(&self, conn: &mut Conn, run: RunId, calls: &[InDoubtCall]) -> Result<(), Fault> {
        conn.execute(
            "UPDATE agent_run SET in_doubt = $2 WHERE id = $1",
            values![run, in_doubt(calls)],
        )
        .await?;
        Ok(())
    }

    /// Marks calls of a root run and its child runs that were sent and have no result as in doubt.
    async fn mark_started_in_doubt(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let mark = sql!(
            "{}",
            end_started(
                FailureCode::InDoubt,
                "decision_id IN (SELECT id FROM agent_run WHERE root_id = $1)"
            )
        );
        self.end_unrecorded(conn, mark, values![root], FailureCode::InDoubt)
            .await?;
        Ok(())
    }

    pub(crate) async fn give_up(&self, conn: &mut Conn, roots: &[RunId]) -> Result<(), Fault> {
        for root in roots {
            self.give_up_run(conn, *root).await?;
        }
        Ok(())
    }

    /// Fails a run that was taken too often without being returned, unless this process holds it, based on its intents.
    /// Only workers read journals.
    async fn give_up_run(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let give_up = sql!(
            "UPDATE agent_run SET status = 'failed', completed_at = @now, lease_until = NULL, \
             stop_reason = '{}', error_message = '{}' WHERE id = $1 AND {} RETURNING completed_at",
            StopReason::ProcessLost.as_str(),
            GIVEN_UP.replace('\'', "''"),
            taken_too_often("$2")
        );
        let ended = conn.one(give_up, values![root, self.writing.owner.clone()]).await?;
        // No row: a worker has taken it meanwhile, or it was given up in a commit that was not acknowledged.
        if ended.is_none() {
            return Ok(());
        }
        let started: Vec<_> = self.started_calls(conn, root).await?.into_values().flatten().collect();
        self.end_called(conn, root, ended).await?;
        // The root lists the calls of its child runs as well, so that the user finds them there.
        self.set_in_doubt(conn, root, &started).await?;
        let close = sql!("{} WHERE id = $1 AND status = 'open'", close(&GIVEN_UP));
        conn.execute(close, values![root]).await?;
        self.mark_started_in_doubt(conn, root).await?;
        self.close_requests(conn, root).await?;
        self.doubt_actions(conn, root).await?;
        let effects = self.effects(conn, root).await?;
        let effects = effects.map_or_else(String::new, |effects| format!("\n\n{effects}"));
        let words = format!("{}{effects}", *GIVEN_UP).into();
        self.add_thread_line(conn, root, None, MessageRole::Assistant.as_str(), &words)
            .await
    }

    /// The side effects of a root run that completed or are in doubt, in words.
    async fn effects(&self, conn: &mut Conn, root: RunId) -> Result<Option<String>, Fault> {
        #[derive(Deserialize)]
        struct Effect {
            tool: String,
            status: ActionStatus,
        }
        let effects = "SELECT tool, status FROM agent_action WHERE root_id = $1 AND side_effect \
                       AND (status = 'completed' OR status = 'in_doubt') ORDER BY created_at, id";
        let effects: Vec<Effect> = conn.all(effects, values![root]).await?;
        let (unknown, done): (Vec<_>, Vec<_>) = effects
            .into_iter()
            .partition(|effect| effect.status == ActionStatus::InDoubt);
        let tools = |effects: Vec<Effect>| effects.into_iter().map(|effect| effect.tool).collect::<Vec<_>>();
        Ok(completed_effects(&tools(done), &tools(unknown)))
    }

    /// The calls of a root's runs that were sent and have no result, by run. Arguments are included if the log keeps
    /// them.
    async fn started_calls(&self, conn: &mut Conn, root: RunId) -> Result<BTreeMap<RunId, Vec<InDoubtCall>>, Fault> {
        #[derive(Deserialize)]
        struct Call {
            decision_id: RunId,
            id: ActionId,
            tool: String,
            arguments: Option<Box<RawValue>>,
        }
        let started = "SELECT decision_id, id, tool, arguments FROM tool_invocation_log WHERE status = 'started' \
                       AND decision_id IN (SELECT id FROM agent_run WHERE root_id = $1) \
                       ORDER BY decision_id, sequence";
        let keeps_words = matches!(self.writing.content, ContentMode::Full);
        let mut by_run: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for call in conn.all::<Call>(started, values![root]).await? {
            let arguments = call.arguments.filter(|_| keeps_words);
            by_run.entry(call.decision_id).or_default().push(InDoubtCall {
                action_id: call.id,
                tool: call.tool,
                parameters: arguments
                    .and_then(|json| serde_json::from_str(json.get()).ok())
                    .unwrap_or_default(),
            });
        }
        Ok(by_run)
    }

    pub(crate) async fn cancel(&self, conn: &mut Conn, run: RunId, by: &str) -> Result<(), Fault> {
        // Its outermost run is locked. So a concurrent suspension of this run, or of one above it, either sees the
        // cancellation or is woken.
        let entry = Entry::new(AuditKind::RunCancelled, run).decision(run).by(by);
        // One that has never begun.
        let queued = "UPDATE agent_run SET status = 'cancelled', cancel_requested = TRUE, completed_at = @now, \
                      lease_until = NULL, error_message = 'cancelled before it began' \
                      WHERE id = $1 AND status = 'queued' AND attempt = 0";
        if conn.execute(queued, values![run]).await? == 1 {
            let close = sql!(
                "UPDATE decision_log SET status = 'closed', decision_type = '{}', outcome_category = '{}', \
                 intent = 'none', error_detail = 'cancelled before it began', \
                 duration_us = CASE WHEN created_at < @now THEN @now - created_at ELSE 0 END \
                 WHERE id = $1 AND status = 'open'",
                DecisionType::Refuse,
                Outcome::Cancelled
            );
            conn.execute(close, values![run]).await?;
            let words = Arc::from("Cancelled before it began.");
            self.add_thread_line(conn, run, None, MessageRole::Assistant.as_str(), &words)
                .await?;
            self.audit(entry);
            return Ok(());
        }
        let cancel = sql!("UPDATE agent_run SET cancel_requested = TRUE WHERE id = $1 AND {IN_PROGRESS}");
        if conn.execute(cancel, values![run]).await? == 1 {
            self.audit(entry);
        }
        // If its outermost run awaits approval, it and all runs below become ready for a worker, so that it can end.
        let root: Option<RunId> = conn
            .one("SELECT root_id FROM agent_run WHERE id = $1", values![run])
            .await?;
        match root {
            Some(root) => self.wake(conn, root).await,
            None => Ok(()),
        }
    }
}

// Deletes old runs and threads.

/// Outermost runs that are deleted in one transaction: few, since their journals may be long.
const RUNS_AT_ONCE: usize = 8;
const THREADS_AT_ONCE: usize = 32;

impl Batch<'_> {
    /// Deletes runs that ended this long ago, with their child runs and their lines in threads. True if it deleted any:
    /// there may be more.
    pub(crate) async fn prune_runs(&self, conn: &mut Conn, kept: &[Value]) -> Result<bool, Fault> {
        // Skips a run that is currently being resumed, and a run with an action in doubt until it is settled. A run of a
        // planning session is kept while the session is kept.
        let prunable = sql!(
            "SELECT run.id FROM agent_run run WHERE run.parent_run_id IS NULL AND run.completed_at IS NOT NULL \
             AND run.completed_at <= @now - $1 AND {OF} \
             AND NOT EXISTS (SELECT 1 FROM agent_action action WHERE action.root_id = run.id \
             AND action.status = 'in_doubt') \
             AND NOT EXISTS (SELECT 1 FROM planning_session session WHERE session.id = run.session_id) \
             ORDER BY run.completed_at LIMIT {RUNS_AT_ONCE} @postgres(FOR UPDATE OF run SKIP LOCKED)"
        );
        let roots: Vec<RunId> = conn.all(prunable, kept.to_vec()).await?;
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
    pub(crate) async fn prune_threads(&self, conn: &mut Conn, kept: &[Value]) -> Result<bool, Fault> {
        // Skips a thread that is currently being written to.
        let prunable = sql!(
            "SELECT id FROM thread WHERE updated_at <= @now - $1 AND {OF} \
             AND NOT EXISTS (SELECT 1 FROM agent_run WHERE thread_id = thread.id) \
             ORDER BY updated_at LIMIT {THREADS_AT_ONCE} @postgres(FOR UPDATE SKIP LOCKED)"
        );
        let threads: Vec<ThreadId> = conn.all(prunable, kept.to_vec()).await?;
        let may_be_more = threads.len() == THREADS_AT_ONCE;
        conn.execute("DELETE FROM thread WHERE id @in($1)", vec![Value::list(threads)])
            .await?;
        Ok(may_be_more)
    }
}

/// A run that may be reopened.
#[derive(Deserialize)]
struct Ended {
    /// Paused if it can be resumed.
    status: RunStatus,
    attempt: u32,
    /// The request that reopened it last.
    reopened_by: Option<Uuid>,
    fence: i64,
    attempts: Vec<Attempt>,
    started_at: Option<i64>,
    completed_at: Option<i64>,
    stop_reason: Option<StopReason>,
    error_message: Option<String>,
    summary: Option<String>,
    steps: u32,
    tenant: TenantId,
    user_id: UserId,
}

impl Ended {
    async fn read(conn: &mut Conn, run: RunId) -> Result<Option<Self>, Fault> {
        let select = sql!(
            "SELECT CASE WHEN {RESUMABLE} THEN 'paused' ELSE status END AS status, attempt, reopened_by, fence, attempts, \
             started_at, completed_at, stop_reason, error_message, summary, steps, tenant, user_id \
             FROM agent_run WHERE id = $1"
        );
        Ok(conn.one(select, values![run]).await?)
    }

    /// Why it is not reopened.
    fn refuses(&self, run: &Reopen) -> Option<Started> {
        match (self.status, self.attempt == run.attempt) {
            (RunStatus::Paused, true) => None,
            // It was reopened since it was read, and is paused again.
            (RunStatus::Paused, false) => Some(Started::NotPaused(RunStatus::Running)),
            (status, _) => Some(Started::NotPaused(status)),
        }
    }

    /// The lease of the reopened run, if this process works on it.
    fn lease(&self, run: &Reopen) -> Option<Lease> {
        match run.place {
            ReopenedFor::Parent(lease) => Some(lease),
            ReopenedFor::Caller { queued: true, .. } => None,
            ReopenedFor::Caller { queued: false, .. } => Some(Lease {
                run: run.run,
                fence: self.fence,
            }),
        }
    }

    /// Its attempts, with the one that has ended last.
    fn attempts(self) -> Vec<Attempt> {
        let time = |at: Option<i64>| at.map_or_else(String::new, rfc3339);
        let mut attempts = self.attempts;
        attempts.push(Attempt {
            started_at: time(self.started_at),
            completed_at: time(self.completed_at),
            stop_reason: self.stop_reason,
            error_message: self.error_message,
            summary: self.summary,
            steps: self.steps,
        });
        attempts
    }
}

impl Batch<'_> {
    /// Reopens a run. `request` identifies a repetition after an unacknowledged commit.
    pub(crate) async fn reopen(&self, conn: &mut Conn, run: &Reopen, request: Uuid) -> Result<Started, Fault> {
        if let ReopenedFor::Parent(lease) = run.place
            && self.holds(conn, lease, lease.run).await?.is_none()
        {
            return Ok(Started::LeaseLost);
        }
        let Some(ended) = Ended::read(conn, run.run).await? else {
            return Ok(Started::NotFound);
        };
        if ended.reopened_by == Some(request) {
            return Ok(Started::Now(ended.lease(run)));
        }
        if let ReopenedFor::Caller { claim: Some(claim), .. } = &run.place {
            // A claim of this run is another request, which has reopened it.
            match self.claim(conn, claim, &run.run.to_string(), None).await? {
                Claimed::New => {}
                Claimed::Run(_) => return Ok(Started::Before(run.run)),
                Claimed::Mismatch | Claimed::Running | Claimed::Answered(_) => return Ok(Started::Mismatch),
            }
        }
        let mut refused = ended.refuses(run);
        if refused.is_none()
            && let Some(session) = run.session
        {
            refused = match self.fits(conn, &ended.tenant, &ended.user_id, false).await? {
                Err(exceeded) => Some(Started::TooManySessions(exceeded)),
                Ok(()) if self.resume_session(conn, session, run).await? => None,
                Ok(()) => Some(Started::NotPaused(RunStatus::Failed)),
            };
        }
        if let Some(refused) = refused {
            if let ReopenedFor::Caller { claim: Some(claim), .. } = &run.place {
                // The key can be claimed again.
                self.release_claim(conn, &claim.scope, run.run).await?;
            }
            return Ok(refused);
        }
        self.reopen_rows(conn, run, ended.attempts(), request).await?;
        if let ReopenedFor::Caller { settled, .. } = &run.place {
            self.settle_all(conn, run, settled).await?;
        }
        let reopened = Ended::read(conn, run.run).await?;
        let reopened = reopened.ok_or_else(|| Fault::Unavailable("a run vanished while it was reopened".into()))?;
        Ok(Started::Now(reopened.lease(run)))
    }

    /// Reopens the run's row and its decision, and adds the entry to its journal.
    async fn reopen_rows(
        &self,
        conn: &mut Conn,
        run: &Reopen,
        attempts: Vec<Attempt>,
        request: Uuid,
    ) -> Result<(), Fault> {
        let (status, holder, lease, fences) = match run.place {
            // The lease of the outermost run covers it.
            ReopenedFor::Parent(_) => (RunStatus::Running, Value::Text(None), Value::Int(None), 0_i64),
            ReopenedFor::Caller { queued: true, .. } => (RunStatus::Queued, Value::Text(None), 0_i64.into(), 0),
            ReopenedFor::Caller { queued: false, .. } => {
                let owner = self.writing.owner.clone();
                (RunStatus::Running, owner, self.config.run_lease.into(), 1)
            }
        };
        let reopen = sql!(
            "UPDATE agent_run SET {}, status = $2, holder = $3, lease_id = NULL, lease_until = @now + $4, \
             reopened_by = $5, attempts = $6, settings = $7, attempt = attempt + 1, takes = $8, worked_us = 0, \
             reopened_fence = fence, fence = fence + $8, cancel_requested = FALSE, \
             started_at = CASE WHEN $2 = 'queued' THEN NULL ELSE @now END WHERE id = $1 AND {RESUMABLE}",
            RUN.reopened()
        );
        let attempts = Value::json(&attempts);
        let values = values![
            run.run,
            status.as_str(),
            holder,
            lease,
            request,
            attempts,
            &*run.settings,
            fences
        ];
        conn.execute(reopen, values).await?;
        // After the position of the run's end.
        let entry = "INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body, root_id, position) \
                     SELECT run.id, \
                     (SELECT COALESCE(MAX(number), 0) + 1 FROM agent_run_entry WHERE run_id = run.id), \
                     CAST($2 AS BIGINT), 0, $3, run.root_id, \
                     (SELECT COALESCE(MAX(position), 0) + 2 FROM agent_run_entry WHERE root_id = run.root_id) \
                     FROM agent_run run WHERE run.id = $1";
        conn.execute(entry, values![run.run, run.at_us, &run.entry]).await?;
        let decision = sql!(
            "UPDATE decision_log SET {} WHERE id = $1 AND owner = $1 AND status = 'closed'",
            DECISION.reopened()
        );
        conn.execute(decision, values![run.run]).await?;
        Ok(())
    }

    /// Records what a person reported about the run's in-doubt calls.
    async fn settle_all(&self, conn: &mut Conn, run: &Reopen, settled: &Settled) -> Result<(), Fault> {
        for (call, happened) in &settled.calls {
            self.settle_action(conn, *call, *happened, &settled.by).await?;
            // Each attempt has its own settlement: after one that ended before the call was settled in the journal,
            // the next may settle differently.
            let attempt = run.attempt + 1;
            let entry = Entry::new(AuditKind::DoubtSettled, format!("{call}:{}:{attempt}", run.run));
            let entry = entry.action(call).decision(run.run).by(&settled.by);
            self.audit(entry.with("happened", *happened).with("attempt", attempt));
        }
        Ok(())
    }
}
