//! Planning sessions: port [`PlanningSessions`]. `write`, `work` and `changes` write in the writer's transaction, and
//! `columns` are their columns. `read` reads, on connections that analysts do not use.
//!
//! Every change of a session is one UPDATE with a condition on what it was, so only one of two concurrent changes
//! succeeds. Prompts, plans and their history are working state like the inputs of runs: they are kept whole, whatever
//! `records.content` says.

mod changes;
mod columns;
mod read;
mod work;
mod write;

pub(super) use columns::SESSION;

use super::Store;
use super::op::Op;
use crate::domain::ids::{PlanningSessionId, RunId, TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::planning::{
    Moved, PlanEdit, PlanVersion, PlanningSessions, SessionCancel, SessionWait, StoredSession,
};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};

impl PlanningSessions for Store {
    fn session<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        session: PlanningSessionId,
    ) -> BoxFuture<'a, Result<Option<StoredSession>, QueryError>> {
        Box::pin(self.one_session(session, tenant, user))
    }

    fn session_of(&self, run: RunId) -> BoxFuture<'_, Result<Option<PlanningSessionId>, QueryError>> {
        Box::pin(self.session_of_run(run))
    }

    fn runs(&self, session: PlanningSessionId) -> BoxFuture<'_, Result<Vec<(RunId, i64)>, QueryError>> {
        Box::pin(self.runs_of_session(session))
    }

    fn list<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<StoredSession>, QueryError>> {
        Box::pin(self.reading.planning_sessions(tenant, query))
    }

    fn versions(
        &self,
        session: PlanningSessionId,
        after: u32,
        most: u32,
    ) -> BoxFuture<'_, Result<Vec<PlanVersion>, QueryError>> {
        Box::pin(self.versions_of(session, after, most))
    }

    fn waiting(&self, session: PlanningSessionId) -> BoxFuture<'_, Result<Vec<SessionWait>, QueryError>> {
        Box::pin(self.waits_of(session))
    }

    fn edit(&self, edit: PlanEdit) -> BoxFuture<'_, Result<Moved, RecordError>> {
        Box::pin(self.write(Op::EditPlan(Box::new(edit))))
    }

    fn cancel(&self, cancel: SessionCancel) -> BoxFuture<'_, Result<Moved, RecordError>> {
        Box::pin(self.write(Op::CancelSession(cancel)))
    }

    fn sweep(&self, now_us: i64, unconfirmed_us: i64, most: u32) -> BoxFuture<'_, Result<u32, RecordError>> {
        Box::pin(async move {
            let due = self.due_sessions(now_us, unconfirmed_us, most).await?;
            if due.is_empty() {
                return Ok(0);
            }
            self.write(Op::SweepSessions(due, now_us, unconfirmed_us)).await
        })
    }
}
