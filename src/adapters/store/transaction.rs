//! Executes many ops in one transaction.

use super::batch::Batch;
use super::commit::Rows;
use super::db::{Conn, Value};
use super::error::Fault;
use super::op::{Done, Op, Ticket};
use super::statements::PRUNED_AT_ONCE;
use crate::domain::ids::DecisionId;
use crate::domain::tool::FailureCode;
use crate::ports::commit::{Committed, Writer};
use std::sync::Arc;
use std::time::Duration;

/// Dead instances are kept for one day, for operators.
const INSTANCE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The result of a transaction.
pub(super) enum Attempt {
    /// Committed, with one answer for each ticket, in order.
    Committed(Vec<Done>),
    /// Nothing was written.
    Failed(Fault),
    /// COMMIT was sent and not acknowledged.
    Uncertain(Fault),
}

impl Batch<'_> {
    /// Writes all of `tickets` or none of them.
    pub(super) async fn run(&self, conn: &mut Conn, tickets: &[Ticket]) -> Attempt {
        match self.write(conn, tickets).await {
            // A caller that gave up has received "not written", so the others are retried without its ticket.
            Ok(_) if !tickets.iter().all(Ticket::commit) => {
                Attempt::Failed(Fault::Unavailable("a caller gave up waiting".into()))
            }
            Ok(done) => match conn.execute(&self.statements.commit, vec![]).await {
                Ok(_) => Attempt::Committed(done),
                Err(error) => Attempt::Uncertain(error.into()),
            },
            Err(fault) => Attempt::Failed(fault),
        }
    }

    async fn write(&self, conn: &mut Conn, tickets: &[Ticket]) -> Result<Vec<Done>, Fault> {
        self.trail.begin();
        let mut rows = Rows::default();
        for ticket in tickets {
            if let Op::Commit(commit) = &ticket.op {
                self.add_rows(commit, &mut rows)?;
            }
        }
        if let Conn::Sqlite(sqlite) = conn {
            sqlite.still_there()?;
            sqlite.survive_power_loss(tickets.iter().any(|ticket| ticket.op.survives_power_loss()))?;
        }
        conn.execute(&self.statements.begin, vec![]).await?;
        let new_snapshots = self
            .keep_snapshots(conn, tickets.iter().map(|ticket| &ticket.op))
            .await?;
        self.lock_runs(conn, tickets.iter().map(|ticket| &ticket.op)).await?;
        let mut done = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            done.push(match &ticket.op {
                Op::Commit(commit) => Done::Committed(match commit.writer {
                    Writer::Process => Committed::Written,
                    Writer::Holder { lease, run } => self.write_commit(conn, lease, run, commit).await?,
                }),
                Op::Claim(claim, by) => Done::Claimed(self.claim_for(conn, claim, by).await?),
                Op::Run(op) => Done::Run(self.write_run(conn, op).await?),
                Op::Session(op) => {
                    self.write_session(conn, op).await?;
                    Done::Written
                }
                Op::Abandon(decision, scope) => self.abandon(conn, *decision, scope.as_ref()).await?,
                Op::MarkUnanswered(decision) => {
                    let values = vec![Value::text(&decision.to_string()), self.writing.owner.clone()];
                    conn.execute(&self.statements.mark_unanswered, values).await?;
                    Done::Written
                }
                Op::CloseLost(decision) => self.lose(conn, *decision).await?,
                Op::RenewLease => self.beat(conn).await?,
                Op::Sweep => self.sweep(conn).await?,
                Op::Prune => self.prune(conn).await?,
                Op::EndLease => {
                    conn.execute(&self.statements.release_instance, vec![self.writing.owner.clone()])
                        .await?;
                    Done::Written
                }
            });
        }
        self.drop_unused(conn, new_snapshots).await?;
        self.write_rows(conn, rows).await?;
        for ticket in tickets {
            if let Op::Commit(commit) = &ticket.op
                && let Some(decision) = commit.closed()
                && let Some(answer) = &decision.answer
            {
                self.answer(conn, decision.open.id, answer).await?;
            }
        }
        self.write_trail(conn).await?;
        Ok(done)
    }

    async fn abandon(&self, conn: &mut Conn, decision: DecisionId, scope: Option<&Arc<str>>) -> Result<Done, Fault> {
        let id = Value::text(&decision.to_string());
        let values = vec![id.clone(), self.writing.owner.clone()];
        // No row: the decision was not written, or its owner has closed it.
        if conn.execute(&self.statements.abandon, values).await? == 1 {
            let calls = &self.statements.abandon_calls;
            self.end_unrecorded(conn, calls, vec![id.clone()], FailureCode::NotRecorded)
                .await?;
        }
        if let Some(scope) = scope {
            self.release_claim(conn, scope, decision).await?;
        }
        Ok(Done::Written)
    }

    async fn lose(&self, conn: &mut Conn, decision: DecisionId) -> Result<Done, Fault> {
        let values = vec![Value::text(&decision.to_string()), self.writing.owner.clone()];
        let decisions = conn.execute(&self.statements.lose, values).await?;
        let recover = &self.statements.recover_calls;
        let calls = self.end_unrecorded(conn, recover, vec![], FailureCode::InDoubt).await?;
        Ok(Done::Swept(decisions, calls))
    }

    async fn beat(&self, conn: &mut Conn) -> Result<Done, Fault> {
        let lease = i64::try_from(self.lease.as_micros()).unwrap_or(i64::MAX / 2);
        let values = vec![
            self.writing.owner.clone(),
            Value::Int(Some(lease)),
            self.writing.serves.clone(),
        ];
        conn.execute(&self.statements.beat, values).await?;
        Ok(Done::Written)
    }

    async fn sweep(&self, conn: &mut Conn) -> Result<Done, Fault> {
        let values = vec![self.writing.owner.clone()];
        let decisions = conn.execute(&self.statements.recover_decisions, values).await?;
        let recover = &self.statements.recover_calls;
        let calls = self.end_unrecorded(conn, recover, vec![], FailureCode::InDoubt).await?;
        Ok(Done::Swept(decisions, calls))
    }

    async fn prune(&self, conn: &mut Conn) -> Result<Done, Fault> {
        let claims = conn.execute(&self.statements.prune_claims, vec![]).await?;
        let kept = i64::try_from(INSTANCE_KEPT.as_micros()).unwrap_or(i64::MAX);
        conn.execute(&self.statements.prune_instances, vec![Value::Int(Some(kept))])
            .await?;
        let runs = match self.runs_kept {
            // Runs of sessions are kept as long as their sessions, so these come first.
            Some(kept) => {
                self.prune_planning(conn, kept).await?
                    | self.prune_runs(conn, kept).await?
                    | self.prune_threads(conn, kept).await?
            }
            None => false,
        };
        let sessions = conn.execute(&self.statements.prune_sessions, vec![]).await?;
        Ok(Done::Pruned(
            claims >= PRUNED_AT_ONCE || sessions >= PRUNED_AT_ONCE || runs,
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::audit::{Signer, Trail};
    use super::super::config::ContentMode;
    use super::super::connect::Target;
    use super::super::migrate;
    use super::super::rows::Writing;
    use super::super::statements::Statements;
    use super::*;
    use serde_json::value::RawValue;

    use crate::domain::budget::SessionLimits;
    use crate::domain::ids::{ActionId, ConversationId, InstanceId, TenantId, UserId};
    use crate::domain::tool::Tool;
    use crate::ports::commit::{Commit, Fact};
    use crate::ports::records::{OpenCall, OpenDecision};

    fn tool() -> Tool {
        Tool {
            digest: "0".into(),
            ..Tool::named("tasks", "add_task")
        }
    }

    /// Promise: at most once. Every commit that announces a side effect waits for the disk, and no other commit does.
    #[tokio::test]
    async fn on_sqlite_intents_wait_for_the_disk_and_other_rows_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("t.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, Duration::ZERO).await.unwrap();
        let batch = Batch {
            statements: &Statements::new(conn.dialect()),
            writing: &Writing::new(InstanceId::new(), None, ContentMode::Full),
            lease: Duration::from_secs(10),
            run_lease: Duration::from_secs(10),
            runs_kept: None,
            sessions: SessionLimits::default(),
            signer: Some(&Signer::new("a key")),
            trail: Trail::default(),
        };
        for acts in [true, false, true, true, false, true] {
            let decision = OpenDecision {
                id: DecisionId::new(),
                tenant: TenantId::parse("t").unwrap(),
                surface: "chat",
                user: UserId::parse("ann").unwrap(),
                conversation: ConversationId::parse("c").unwrap(),
                message: "".into(),
                definition_hash: "".into(),
                requested_model: "".into(),
                request_id: "".into(),
                created_at: 0,
            };
            let intent = OpenCall {
                id: ActionId::new(),
                decision: decision.id,
                tenant: decision.tenant.clone(),
                sequence: 1,
                tool: Some(Arc::new(tool())),
                name: "t".into(),
                arguments: RawValue::from_string("{}".to_owned()).unwrap().into(),
                policy: None,
                idempotency_key: Some("k".into()),
                created_at: 0,
            };
            let intended = acts.then_some(Fact::Intended(intent));
            let facts = [Fact::Opened(decision)].into_iter().chain(intended).collect();
            let tickets = [
                Ticket::silent(Op::RenewLease),
                Ticket::silent(Op::Commit(Commit::of_process(facts))),
            ];
            let attempt = batch.run(&mut conn, &tickets).await;
            assert!(matches!(attempt, Attempt::Committed(_)));
            let mut level = 0;
            conn.fetch(&"PRAGMA synchronous".into(), vec![], &mut |row| {
                level = row.int(0)?;
                Ok(ControlFlow::Break(()))
            })
            .await
            .unwrap();
            // 2 is FULL, 1 is NORMAL.
            assert_eq!(level, if acts { 2 } else { 1 });
        }
    }
}
