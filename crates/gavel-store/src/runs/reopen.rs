//! Reopens paused runs: the same run continues.

use serde::Deserialize;
use uuid::Uuid;

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::decisions::DECISION;
use super::super::error::Fault;
use super::RESUMABLE;
use super::columns::RUN;
use crate::api::runs::Attempt;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::ids::{RunId, TenantId, UserId};
use crate::domain::time::rfc3339;
use crate::ports::claims::Claimed;
use crate::ports::runs::{Lease, Reopen, Reopened, ReopenedFor, Settled};
use crate::queue::Batch;

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
    fn refuses(&self, run: &Reopen) -> Option<Reopened> {
        match (self.status, self.attempt == run.attempt) {
            (RunStatus::Paused, true) => None,
            // It was reopened since it was read, and is paused again.
            (RunStatus::Paused, false) => Some(Reopened::NotPaused(RunStatus::Running)),
            (status, _) => Some(Reopened::NotPaused(status)),
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
    pub(crate) async fn reopen(&self, conn: &mut Conn, run: &Reopen, request: Uuid) -> Result<Reopened, Fault> {
        if let ReopenedFor::Parent(lease) = run.place
            && self.holds(conn, lease, lease.run).await?.is_none()
        {
            return Ok(Reopened::LeaseLost);
        }
        let Some(ended) = Ended::read(conn, run.run).await? else {
            return Ok(Reopened::NotFound);
        };
        if ended.reopened_by == Some(request) {
            return Ok(Reopened::Yes(ended.lease(run)));
        }
        if let ReopenedFor::Caller { claim: Some(claim), .. } = &run.place {
            // A claim of this run is another request, which has reopened it.
            match self.claim(conn, claim, &run.run.to_string(), None).await? {
                Claimed::New => {}
                Claimed::Run(_) => return Ok(Reopened::Replayed),
                Claimed::Mismatch | Claimed::Running | Claimed::Answered(_) => return Ok(Reopened::Mismatch),
            }
        }
        let mut refused = ended.refuses(run);
        if refused.is_none()
            && let Some(session) = run.session
        {
            refused = match self.fits(conn, &ended.tenant, &ended.user_id, false).await? {
                Err(exceeded) => Some(Reopened::TooManySessions(exceeded)),
                Ok(()) if self.resume_session(conn, session, run).await? => None,
                Ok(()) => Some(Reopened::NotPaused(RunStatus::Failed)),
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
        Ok(Reopened::Yes(reopened.lease(run)))
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
                (RunStatus::Running, owner, self.run_lease.into(), 1)
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
            status,
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
