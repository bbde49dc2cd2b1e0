//! Creates runs, and ends those whose creation was not acknowledged.

use std::sync::{Arc, LazyLock};

use super::super::db::{Conn, values};
use super::super::decisions::DECISIONS;
use super::super::error::Fault;
use super::super::insert::Insert;
use super::columns::{Beginning, RUN};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;
use crate::ports::claims::Claimed;
use crate::ports::runs::{Created, Lease, NewRun};
use crate::queue::Batch;

impl Batch<'_> {
    pub(crate) async fn create(&self, conn: &mut Conn, run: &NewRun) -> Result<Created, Fault> {
        let parent = run.origin.parent();
        let mut queued = run.queued && parent.is_none();
        let mut last = 0;
        let mut lease = match parent {
            None => (!queued).then_some(Lease { run: run.id, fence: 1 }),
            Some(parent) => {
                let Some(held) = self.holds(conn, parent.lease, parent.run).await? else {
                    return Ok(Created::LeaseLost);
                };
                last = held.last;
                let called = "SELECT id FROM agent_run WHERE parent_run_id = $1 AND parent_action_id = $2";
                if let Some(there) = conn.one(called, values![parent.run, parent.action]).await? {
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
        Ok(Created::New(lease))
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
            lease: (!queued && run.origin.parent().is_none()).then_some(self.run_lease),
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
