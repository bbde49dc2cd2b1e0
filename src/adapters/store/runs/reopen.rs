//! Reopens paused runs: the same run continues.

use uuid::Uuid;

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::db::{Conn, Row, Value};
use super::super::decisions::DECISION;
use super::super::error::Fault;
use super::super::table::reopened;
use super::values::{id, int, parse};
use crate::domain::agent_run::{Attempt, RunStatus, StopReason};
use crate::domain::time::rfc3339;
use crate::ports::claims::Claimed;
use crate::ports::runs::{Lease, Reopen, Reopened, ReopenedFor, Settled};

impl Batch<'_> {
    /// Reopens a run. `request` identifies a repetition after an unacknowledged commit.
    pub(super) async fn reopen(&self, conn: &mut Conn, run: &Reopen, request: Uuid) -> Result<Reopened, Fault> {
        if let ReopenedFor::Parent(lease) = run.place
            && self.holds(conn, lease, lease.run).await?.is_none()
        {
            return Ok(Reopened::LeaseLost);
        }
        let Some(row) = conn.first(&self.texts().reopenable, vec![id(run.run)]).await? else {
            return Ok(Reopened::NotFound);
        };
        if row.opt_text(2)?.is_some_and(|by| by == request.to_string()) {
            return Ok(Reopened::Yes(self.lease_of(&row, run)?));
        }
        if let ReopenedFor::Caller { claim: Some(claim), .. } = &run.place {
            // A claim of this run is another request, which has reopened it.
            match self.claim(conn, claim, &run.run.to_string(), None).await? {
                Claimed::New => {}
                Claimed::Run(_) => return Ok(Reopened::Replayed),
                Claimed::Mismatch | Claimed::Running | Claimed::Answered(_) => return Ok(Reopened::Mismatch),
            }
        }
        let mut refused = refused(&row, run)?;
        if refused.is_none()
            && let Some(session) = run.session
        {
            refused = match self.fits(conn, [&row.text(11)?, &row.text(12)?], false).await? {
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
        conn.execute(&self.texts().reopen, self.reopened(&row, run, request)?)
            .await?;
        let entry = vec![id(run.run), int(run.at_us), Value::shared(&run.entry)];
        conn.execute(&self.texts().reopen_entry, entry).await?;
        let reopen = format!(
            "UPDATE decision_log SET {} WHERE id = $1 AND owner = $1 AND status = 'closed'",
            reopened(DECISION)
        );
        conn.execute(&reopen.into(), vec![run.run.into()]).await?;
        if let ReopenedFor::Caller { settled, .. } = &run.place {
            self.settle_all(conn, run, settled).await?;
        }
        let row = conn.first(&self.texts().reopenable, vec![id(run.run)]).await?;
        let row = row.ok_or_else(|| Fault::Unavailable("a run vanished while it was reopened".into()))?;
        Ok(Reopened::Yes(self.lease_of(&row, run)?))
    }

    /// The lease of a reopened run, if this process works on it.
    fn lease_of(&self, row: &Row, run: &Reopen) -> Result<Option<Lease>, Fault> {
        Ok(match run.place {
            ReopenedFor::Parent(lease) => Some(lease),
            ReopenedFor::Caller { queued: true, .. } => None,
            ReopenedFor::Caller { queued: false, .. } => Some(Lease {
                run: run.run,
                fence: row.int(3)?,
            }),
        })
    }

    /// The values of a reopened run.
    fn reopened(&self, row: &Row, run: &Reopen, request: Uuid) -> Result<Vec<Value>, Fault> {
        let (none, here) = (
            Value::Text(None),
            i64::from(matches!(run.place, ReopenedFor::Caller { queued: false, .. })),
        );
        let (status, holder, lease) = match run.place {
            // The lease of the outermost run covers it.
            ReopenedFor::Parent(_) => (RunStatus::Running, none, Value::Int(None)),
            ReopenedFor::Caller { queued: true, .. } => (RunStatus::Queued, none, int(0)),
            ReopenedFor::Caller { queued: false, .. } => {
                (RunStatus::Running, self.writing.owner.clone(), self.lease_length())
            }
        };
        Ok(vec![
            id(run.run),
            Value::text(status.as_str()),
            holder,
            lease,
            id(request),
            Value::text(&attempts(row)?),
            Value::text(run.settings.get()),
            int(here),
        ])
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

/// Why a run is not reopened.
fn refused(row: &Row, run: &Reopen) -> Result<Option<Reopened>, Fault> {
    let status = parse(&row.text(0)?, RunStatus::parse)?;
    Ok(match (status, row.int(1)? == i64::from(run.attempt)) {
        (RunStatus::Paused, true) => None,
        // It was reopened since it was read, and is paused again.
        (RunStatus::Paused, false) => Some(Reopened::NotPaused(RunStatus::Running)),
        (status, _) => Some(Reopened::NotPaused(status)),
    })
}

/// The attempts of a run, with the one that has ended last, as JSON.
fn attempts(row: &Row) -> Result<String, Fault> {
    let mut attempts: Vec<Attempt> = match row.opt_text(4)? {
        Some(before) => parse(&before, |text| serde_json::from_str(text).ok())?,
        None => Vec::new(),
    };
    let time = |column| -> Result<String, Fault> { Ok(row.opt_int(column)?.map_or_else(String::new, rfc3339)) };
    let reason = row.opt_text(7)?;
    attempts.push(Attempt {
        started_at: time(5)?,
        completed_at: time(6)?,
        stop_reason: reason.map(|text| parse(&text, StopReason::parse)).transpose()?,
        error_message: row.opt_text(8)?,
        summary: row.opt_text(9)?,
        steps: row.int(10)?.try_into().unwrap_or(u32::MAX),
    });
    serde_json::to_string(&attempts).map_err(|error| Fault::Refused(error.to_string().into()))
}
