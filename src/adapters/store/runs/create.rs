//! Creates runs, and ends those whose creation was not acknowledged.

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::op::Abandoned;
use super::values::{id, int, parse};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;
use crate::ports::claims::Claimed;
use crate::ports::runs::{Created, Lease, NewRun};

impl Batch<'_> {
    pub(in super::super) async fn create(&self, conn: &mut Conn, run: &NewRun) -> Result<Created, Fault> {
        let parent = run.origin.parent();
        let mut queued = run.queued && parent.is_none();
        let mut lease = match parent {
            None => (!queued).then_some(Lease { run: run.id, fence: 1 }),
            Some(parent) => {
                if !self.holds(conn, parent.lease, parent.run).await? {
                    return Ok(Created::LeaseLost);
                }
                let values = vec![id(parent.run), id(parent.action)];
                if let Some(there) = conn.first(&self.texts().called, values).await? {
                    let there = parse(&there.text(0)?, RunId::parse)?;
                    return Ok(match there == run.id {
                        true => Created::New(Some(parent.lease)),
                        false => Created::Replayed(there),
                    });
                }
                Some(parent.lease)
            }
        };
        if let Some(claim) = &run.claim {
            match self.claim(conn, claim, &run.id.to_string()).await? {
                Claimed::New => {}
                Claimed::Run(run) => return Ok(Created::Replayed(run)),
                // The scope names the route, so no chat request has claimed it.
                Claimed::Mismatch | Claimed::Running | Claimed::Answered(_) => return Ok(Created::Mismatch),
            }
        }
        if let Some(paused) = run.resumes
            && let Some(refused) = self.resume(conn, paused, run.id).await?
        {
            self.free_claim(conn, run).await?;
            return Ok(refused);
        }
        let mut created_at = run.decision.created_at;
        if let Some(place) = run.origin.thread() {
            match self.enter_thread(conn, run, place).await? {
                Ok(None) => {}
                // The run waits its turn, even if a caller waits for it.
                Ok(Some(at)) => (queued, lease, created_at) = (true, None, at),
                Err(refused) => {
                    self.free_claim(conn, run).await?;
                    return Ok(refused);
                }
            }
        }
        let mut decision = Vec::new();
        self.writing.open_for(&run.decision, id(run.id), &mut decision);
        self.statements.open.run(conn, decision).await?;
        self.texts().create.run(conn, self.row(run, queued, created_at)).await?;
        if let (Some(paused), Some(settled)) = (run.resumes, &run.settled) {
            for (call, happened) in &settled.calls {
                self.settle_action(conn, *call, *happened, &settled.by).await?;
                // Each resume has its own settlement: after a resume that was cancelled before it started, another may
                // settle differently.
                let mut entry = Entry::new(AuditKind::DoubtSettled, format!("{call}:{}", run.id));
                entry = entry.action(call).decision(paused).by(&settled.by);
                entry = entry.with("happened", *happened);
                self.audit(entry.with("resumed_by", run.id.to_string()));
            }
        }
        Ok(Created::New(lease))
    }

    /// Nothing was created, so the key can be claimed again.
    async fn free_claim(&self, conn: &mut Conn, run: &NewRun) -> Result<(), Fault> {
        match &run.claim {
            Some(claim) => self.release_claim(conn, &claim.scope, run.id).await,
            None => Ok(()),
        }
    }

    /// The values of a new run.
    fn row(&self, run: &NewRun, queued: bool, created_at: i64) -> Vec<Value> {
        let none = Value::Text(None);
        // The caller of a child run works on it at once.
        let status = match queued {
            true => RunStatus::Queued,
            false => RunStatus::Running,
        };
        let begun = status == RunStatus::Running;
        let parent = run.origin.parent();
        let (holder, lease, fence) = match (parent, begun) {
            (Some(_), _) => (none.clone(), Value::Int(None), 0),
            (None, true) => (self.writing.owner.clone(), self.lease_length(), 1),
            (None, false) => (none.clone(), int(0), 0),
        };
        vec![
            id(run.id),
            id(parent.map_or(run.id, |parent| parent.lease.run)),
            parent.map_or(none.clone(), |parent| id(parent.run)),
            parent.map_or(none.clone(), |parent| id(parent.action)),
            Value::text(run.decision.tenant.as_str()),
            Value::text(run.decision.user.as_str()),
            Value::text(run.project.as_str()),
            Value::shared(&run.agent),
            Value::Int(run.version),
            Value::shared(&run.decision.definition_hash),
            Value::shared(&run.snapshot.hash),
            Value::text(run.input.get()),
            Value::text(run.settings.get()),
            Value::text(status.as_str()),
            holder,
            lease,
            int(fence),
            // This process is the first to take it.
            int(fence),
            int(created_at),
            Value::Int(begun.then_some(created_at)),
            run.resumes.map_or(none.clone(), id),
            run.origin.thread().map_or(none, |place| id(place.thread)),
        ]
    }

    /// Records in the paused run which run resumes it, or returns why that is impossible.
    async fn resume(&self, conn: &mut Conn, paused: RunId, by: RunId) -> Result<Option<Created>, Fault> {
        if conn.execute(&self.texts().resume, vec![id(paused), id(by)]).await? == 1 {
            return Ok(None);
        }
        let row = conn.first(&self.texts().resumable, vec![id(paused)]).await?;
        let Some(row) = row else {
            return Ok(Some(Created::NothingToResume));
        };
        let status = parse(&row.text(0)?, RunStatus::parse)?;
        Ok(Some(match row.opt_text(1)? {
            Some(other) => Created::ResumedBy(parse(&other, RunId::parse)?),
            None => Created::NotPaused(status),
        }))
    }

    pub(in super::super) async fn abandon_run(&self, conn: &mut Conn, abandoned: &Abandoned) -> Result<(), Fault> {
        let run = id(abandoned.run);
        let values = vec![run.clone(), self.writing.owner.clone()];
        // No row: it was not created, or a worker has taken it.
        if conn.execute(&self.texts().abandon, values).await? == 0 {
            return Ok(());
        }
        conn.execute(&self.statements.abandon, vec![run.clone(), run.clone()])
            .await?;
        if let Some(paused) = abandoned.resumes {
            conn.execute(&self.texts().unresume, vec![id(paused), run]).await?;
        }
        if let Some(scope) = &abandoned.scope {
            self.release_claim(conn, scope, abandoned.run).await?;
        }
        Ok(())
    }
}
