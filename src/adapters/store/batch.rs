//! Executes many ops in one transaction.

use super::audit::{Entry, Signer, Trail};
use super::db::{Conn, Row, Sql, Value};
use super::error::Fault;
use super::op::{Done, Op, Ticket};
use super::recovered;
use super::rows::Writing;
use super::statements::{PRUNED_AT_ONCE, Statements};
use crate::domain::ids::{DecisionId, GrantId};
use crate::domain::tool::FailureCode;
use crate::ports::records::{CallRecord, Claim, Claimed, ClosedDecision, Intent, OpenDecision, StoredAnswer};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Dead instances are kept for one day, for operators.
const INSTANCE_KEPT: Duration = Duration::from_secs(24 * 3600);

/// What a transaction needs besides its ops.
pub(super) struct Batch<'a> {
    pub(super) statements: &'a Statements,
    pub(super) writing: &'a Writing,
    pub(super) lease: Duration,
    /// Another worker may take a run whose holder has not renewed its lease for this long.
    pub(super) run_lease: Duration,
    /// How long ended runs are kept; `None` keeps them forever.
    pub(super) runs_kept: Option<Duration>,
    /// The key that signs the audit log.
    pub(super) signer: Option<&'a Signer>,
    /// The audit entries of this transaction.
    pub(super) trail: Trail,
}

/// Values of rows, by statement.
#[derive(Default)]
struct Rows {
    opens: Vec<Value>,
    intents: Vec<Value>,
    closes: Vec<Value>,
    calls: Vec<Value>,
}

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

    /// The rows of all ops, in the order of the tickets.
    fn rows(&self, tickets: &[Ticket]) -> Rows {
        let mut rows = Rows::default();
        for ticket in tickets {
            match &ticket.op {
                Op::Open(decision, intended) => {
                    self.writing.open(decision, &mut rows.opens);
                    for intent in intended {
                        self.writing.intent(intent, &mut rows.intents);
                        self.audit_intent(intent, Some(decision), None);
                    }
                }
                Op::Intend(intended) => {
                    for intent in intended {
                        self.writing.intent(intent, &mut rows.intents);
                        self.audit_intent(intent, None, None);
                    }
                }
                Op::Close(decision) => {
                    self.writing.close(decision, &mut rows.closes);
                    for call in &decision.calls {
                        self.writing.call(&decision.open, call, &mut rows.calls);
                        self.audit_call(call, &decision.open);
                    }
                }
                _ => {}
            }
        }
        rows
    }

    async fn write(&self, conn: &mut Conn, tickets: &[Ticket]) -> Result<Vec<Done>, Fault> {
        self.trail.begin();
        let rows = self.rows(tickets);
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
                Op::Open(..) | Op::Intend(_) | Op::Close(_) => Done::Written,
                Op::Claim(claim) => {
                    let met = self.claim(conn, claim).await?;
                    if met == Claimed::New {
                        // Immediately, since the next claim in this batch may use the same key.
                        let mut row = Vec::new();
                        self.writing.open(&claim.decision, &mut row);
                        self.statements.open.run(conn, row).await?;
                    }
                    Done::Claimed(met)
                }
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
        let (closed, called) = (
            self.statements.close.rows(&rows.closes) as u64,
            self.statements.call.rows(&rows.calls) as u64,
        );
        self.statements.open.run(conn, rows.opens).await?;
        self.statements.intend.run(conn, rows.intents).await?;
        // Fewer rows than given mean an id that another owner has. Its row is not overwritten.
        expect(
            "a decision",
            closed,
            self.statements.close.run(conn, rows.closes).await?,
        )?;
        expect("a tool call", called, self.statements.call.run(conn, rows.calls).await?)?;
        for ticket in tickets {
            if let Op::Close(decision) = &ticket.op
                && let Some(answer) = &decision.answer
            {
                self.answer(conn, decision.open.id, answer).await?;
            }
        }
        self.write_trail(conn).await?;
        Ok(done)
    }

    /// Adds the intent of a side effect to the audit log.
    pub(super) fn audit_intent(&self, intent: &Intent, decision: Option<&OpenDecision>, grant: Option<GrantId>) {
        if let Some(entry) = Entry::intended(intent, decision, &self.writing.content) {
            self.audit(match grant {
                Some(grant) => entry.with("grant_id", grant.to_string()),
                None => entry,
            });
        }
    }

    /// Adds the outcome of a call to the audit log; most calls have no side effect and no entry.
    fn audit_call(&self, call: &CallRecord, decision: &OpenDecision) {
        if let Some(entry) = Entry::ended(call, decision) {
            self.audit(entry);
        }
    }

    /// Closes calls that have no recorded outcome. The statement returns call, decision, tool, and whether the call has
    /// a side effect. Returns the number of calls.
    pub(super) async fn end_unrecorded(
        &self,
        conn: &mut Conn,
        sql: &Sql,
        values: Vec<Value>,
        code: FailureCode,
    ) -> Result<u64, Fault> {
        let mut ended = 0;
        conn.fetch(sql, values, &mut |row| {
            ended += 1;
            if row.bool(3)? {
                self.audit(Entry::outcome(row.text(0)?, row.text(1)?, &row.text(2)?, Some(code)));
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(ended)
    }

    async fn claim(&self, conn: &mut Conn, claim: &Claim) -> Result<Claimed, Fault> {
        let decision = claim.decision.id.to_string();
        let others = self.others_claim(conn, &claim.scope, &claim.fingerprint, &decision);
        let Some(row) = others.await? else {
            return Ok(Claimed::New);
        };
        if row.text(0)? != *claim.fingerprint {
            return Ok(Claimed::Mismatch);
        }
        let answer = |status: u16, body: String| {
            Claimed::Answered(StoredAnswer {
                scope: Arc::clone(&claim.scope),
                status,
                body: body.into(),
            })
        };
        if let (Some(status), Some(body)) = (row.opt_int(2)?, row.opt_text(3)?) {
            return Ok(answer(u16::try_from(status).unwrap_or(500), body));
        }
        if row.opt_text(4)?.as_deref() == Some("open") {
            return Ok(Claimed::Running);
        }
        let request = row.opt_text(5)?.unwrap_or_default();
        let (status, body) = recovered::answer(&row.text(1)?, &request);
        Ok(answer(status, body))
    }

    /// Claims a key. If another decision holds it, returns the row of the statement `claimed`.
    pub(super) async fn others_claim(
        &self,
        conn: &mut Conn,
        scope: &Arc<str>,
        fingerprint: &Arc<str>,
        decision: &str,
    ) -> Result<Option<Row>, Fault> {
        let values = vec![Value::shared(scope), Value::shared(fingerprint), Value::text(decision)];
        if conn.execute(&self.statements.claim, values).await? == 1 {
            return Ok(None);
        }
        let row = conn
            .first(&self.statements.claimed, vec![Value::shared(scope)])
            .await?
            .ok_or_else(|| Fault::Unavailable("a claim vanished while it was read".into()))?;
        // The claim may be this decision's own, from a commit that was not acknowledged.
        let others = row.text(1)? != decision;
        Ok(others.then_some(row))
    }

    /// Closes a decision that belongs to another owner than this process, with its calls.
    pub(super) async fn close_for(
        &self,
        conn: &mut Conn,
        decision: &ClosedDecision,
        owner: Value,
    ) -> Result<(), Fault> {
        let mut row = Vec::new();
        self.writing.close_for(decision, owner, &mut row);
        expect("a decision", 1, self.statements.close.run(conn, row).await?)?;
        for call in &decision.calls {
            self.audit_call(call, &decision.open);
        }
        self.log_calls(conn, &decision.open, &decision.calls).await?;
        if let Some(answer) = &decision.answer {
            self.answer(conn, decision.open.id, answer).await?;
        }
        Ok(())
    }

    /// Writes the outcomes of calls, each over its intent if there is one.
    pub(super) async fn log_calls(
        &self,
        conn: &mut Conn,
        decision: &OpenDecision,
        calls: &[CallRecord],
    ) -> Result<(), Fault> {
        let mut rows = Vec::new();
        for call in calls {
            self.writing.call(decision, call, &mut rows);
        }
        let called = self.statements.call.rows(&rows) as u64;
        expect("a tool call", called, self.statements.call.run(conn, rows).await?)
    }

    /// Keeps the answer for a retried request. A 429 or 503 is not kept: its claim is deleted, so the retry is a new
    /// request.
    async fn answer(&self, conn: &mut Conn, decision: DecisionId, answer: &StoredAnswer) -> Result<(), Fault> {
        if matches!(answer.status, 429 | 503) {
            let values = vec![Value::shared(&answer.scope), Value::text(&decision.to_string())];
            conn.execute(&self.statements.abandon_claim, values).await?;
            return Ok(());
        }
        let values = vec![
            Value::Int(Some(i64::from(answer.status))),
            Value::shared(&answer.body),
            Value::shared(&answer.scope),
            Value::text(&decision.to_string()),
        ];
        // No row: the claim expired while the decision ran. The answer is still sent.
        conn.execute(&self.statements.answer, values).await?;
        Ok(())
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
            conn.execute(&self.statements.abandon_claim, vec![Value::shared(scope), id])
                .await?;
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
        let values = vec![self.writing.owner.clone(), Value::Int(Some(lease))];
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
            Some(kept) => self.prune_runs(conn, kept).await? | self.prune_threads(conn, kept).await?,
            None => false,
        };
        let sessions = conn.execute(&self.statements.prune_sessions, vec![]).await?;
        Ok(Done::Pruned(
            claims >= PRUNED_AT_ONCE || sessions >= PRUNED_AT_ONCE || runs,
        ))
    }
}

fn expect(what: &str, given: u64, written: u64) -> Result<(), Fault> {
    if given == written {
        return Ok(());
    }
    Err(Fault::Refused(
        format!("{what} was not written: its id is already used ({written} of {given} rows written)").into(),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::config::ContentMode;
    use super::super::connect::Target;
    use super::super::migrate;
    use super::*;
    use serde_json::value::RawValue;

    use crate::domain::ids::{ActionId, ConversationId, InstanceId, TenantId, UserId};
    use crate::domain::schema::JsonSchema;
    use crate::domain::tool::{Idempotency, Tool};

    fn tool() -> Tool {
        let schema = RawValue::from_string("{}".to_owned()).unwrap();
        Tool {
            server: "tasks".into(),
            name: "add_task".into(),
            description: String::new(),
            input: JsonSchema::compile(schema.clone()).unwrap(),
            model_schema: schema,
            output_schema: None,
            side_effect: true,
            idempotency: Idempotency::None,
            approval: None,
            timeout: Duration::from_secs(30),
            identity_argument: None,
            tenant_users: false,
            recipients: Vec::new(),
            always_ask: Vec::new(),
            single_line: Vec::new(),
            times: None,
            preflight: None,
            digest: "0".into(),
        }
    }

    /// Promise 3: every commit that announces a side effect waits for the disk, and no other commit does.
    #[tokio::test]
    async fn on_sqlite_intents_wait_for_the_disk_and_other_rows_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, Duration::ZERO).await.unwrap();
        let batch = Batch {
            statements: &Statements::new(conn.dialect()),
            writing: &Writing::new(InstanceId::new(), ContentMode::Full),
            lease: Duration::from_secs(10),
            run_lease: Duration::from_secs(10),
            runs_kept: None,
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
                request_id: "".into(),
                created_at: 0,
            };
            let intent = Intent {
                id: ActionId::new(),
                decision: decision.id,
                tenant: decision.tenant.clone(),
                sequence: 1,
                tool: Arc::new(tool()),
                arguments: RawValue::from_string("{}".to_owned()).unwrap().into(),
                policy: None,
                idempotency_key: "k".into(),
                started_at: 0,
            };
            let intents = if acts { vec![intent] } else { Vec::new() };
            let tickets = [
                Ticket::silent(Op::RenewLease),
                Ticket::silent(Op::Open(Box::new(decision), intents)),
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
