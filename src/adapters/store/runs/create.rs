//! Creates runs, and ends those whose creation was not acknowledged.

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
        let mut last = 0;
        let mut lease = match parent {
            None => (!queued).then_some(Lease { run: run.id, fence: 1 }),
            Some(parent) => {
                let Some((held, _)) = self.holds(conn, parent.lease, parent.run).await? else {
                    return Ok(Created::LeaseLost);
                };
                last = held;
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
            let id = run.id.to_string();
            match self.claim(conn, claim, &id, Some(&id)).await? {
                Claimed::New => {}
                Claimed::Run(run) => return Ok(Created::Replayed(run)),
                // The scope names the route, so no chat request has claimed it.
                Claimed::Mismatch | Claimed::Running | Claimed::Answered(_) => return Ok(Created::Mismatch),
            }
        }
        let mut created_at = run.decision.created_at;
        if let Some(place) = run.origin.thread() {
            match self.enter_thread(conn, run, place).await? {
                Ok(None) => {}
                // The run waits its turn, even if a caller waits for it.
                Ok(Some(at)) => (queued, lease, created_at) = (true, None, at),
                Err(refused) => {
                    // Nothing was created, so the key can be claimed again.
                    if let Some(claim) = &run.claim {
                        self.release_claim(conn, &claim.scope, run.id).await?;
                    }
                    return Ok(refused);
                }
            }
        }
        if let Some(place) = run.origin.session()
            && let Some(refused) = self.enter_session(conn, run, place).await?
        {
            if let Some(claim) = &run.claim {
                self.release_claim(conn, &claim.scope, run.id).await?;
            }
            return Ok(refused);
        }
        let mut decision = Vec::new();
        let decisions = &self.statements.decisions;
        decisions.begin(&run.decision, &self.writing.owned_by(run.id), &mut decision);
        decisions.write_begun(conn, decision).await?;
        let created = self.texts().create.run(conn, self.row(run, queued, created_at)).await?;
        // An earlier commit of the same op, whose acknowledgement was lost, has written the entries too.
        if let Some(lease) = lease
            && created > 0
        {
            self.enter(conn, lease.run, run.id, last, &run.entries).await?;
        }
        Ok(Created::New(lease))
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
            run.origin.thread().map_or(none.clone(), |place| id(place.thread)),
            run.origin.session().map_or(none, |place| id(place.session)),
        ]
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
        if let Some(scope) = &abandoned.scope {
            self.release_claim(conn, scope, abandoned.run).await?;
        }
        Ok(())
    }
}
