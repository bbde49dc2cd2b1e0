//! Executes many ops in one transaction.

use super::claims::RUN_ACTIVE;
use super::commit::Rows;
use super::db::{Conn, Value, sql, values};
use super::error::Fault;
use super::op::{Done, Op, Recovered, Ticket};
use super::queue::{Batch, Cleanup};
use super::retention::{Of, kept_of};
use super::texts::{Key, Text};
use crate::api::decisions::CallStatus;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::ids::DecisionId;
use crate::domain::tool::FailureCode;
use crate::ports::commit::{Committed, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Few enough that the transaction does not block others.
const PRUNED_AT_ONCE: u64 = 1000;
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
        let texts = self.new_texts(tickets);
        match self.write(conn, tickets, &texts).await {
            // A caller that gave up has received "not written", so the others are retried without its ticket.
            Ok(_) if !tickets.iter().all(Ticket::commit) => {
                Attempt::Failed(Fault::Unavailable("a caller gave up waiting".into()))
            }
            Ok(done) => match conn.execute("COMMIT", vec![]).await {
                Ok(_) => {
                    self.known.add(texts);
                    Attempt::Committed(done)
                }
                Err(error) => Attempt::Uncertain(error.into()),
            },
            Err(fault) => Attempt::Failed(fault),
        }
    }

    async fn write(
        &self,
        conn: &mut Conn,
        tickets: &[Ticket],
        texts: &BTreeMap<Key, Text>,
    ) -> Result<Vec<Done>, Fault> {
        self.trail.begin();
        let mut rows = Rows::default();
        for ticket in tickets {
            if let Op::Commit(commit) = &ticket.op {
                self.add_rows(commit, &mut rows)?;
            }
        }
        if let Conn::Sqlite(sqlite) = conn {
            sqlite.still_there()?;
            sqlite.survive_power_loss(tickets.iter().any(|ticket| ticket.op.nature().survives_power_loss))?;
        }
        conn.execute(conn.dialect().begin(), vec![]).await?;
        let new_snapshots = self
            .keep_snapshots(conn, tickets.iter().map(|ticket| &ticket.op))
            .await?;
        self.keep_texts(conn, texts).await?;
        self.lock(conn, tickets.iter().map(|ticket| &ticket.op)).await?;
        let mut done = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            done.push(self.execute(conn, &ticket.op).await?);
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

    /// Executes one op within the transaction.
    async fn execute(&self, conn: &mut Conn, op: &Op) -> Result<Done, Fault> {
        Ok(match op {
            Op::Commit(commit) => match commit.writer {
                Writer::Process => Box::new(Committed::Written),
                Writer::Holder { lease, run } => Box::new(self.write_commit(conn, lease, run, commit).await?),
            },
            Op::Claim(claim, by) => Box::new(self.claim_for(conn, claim, by).await?),
            Op::Cleanup(Cleanup::Abandon(decision, scope)) => {
                Box::new(self.abandon(conn, *decision, scope.as_ref()).await?)
            }
            Op::Cleanup(Cleanup::AbandonRun(run, scope)) => {
                Box::new(self.abandon_run(conn, *run, scope.as_ref()).await?)
            }
            Op::Cleanup(Cleanup::CloseLost(decision)) => Box::new(self.close_lost(conn, *decision).await?),
            Op::Cleanup(Cleanup::MarkUnanswered(decision)) => Box::new(self.mark_unanswered(conn, *decision).await?),
            Op::RenewLease => Box::new(self.renew_lease(conn).await?),
            Op::Sweep => Box::new(self.sweep(conn).await?),
            Op::Prune => Box::new(self.prune(conn).await?),
            Op::TakeQuarters(taker) => Box::new(self.take_quarters(conn, *taker).await?),
            Op::PutQuarter(taker, quarter) => Box::new(self.put_quarter(conn, *taker, quarter).await?),
            Op::EndLease => Box::new(self.end_lease(conn).await?),
            Op::BeginLogin(session) => Box::new(self.begin_login(conn, session).await?),
            Op::NoteLogin(id, at) => Box::new(self.note_login(conn, id, *at).await?),
            Op::EndLogin(id) => Box::new(self.end_login(conn, id).await?),
            Op::CreateRun(run) => Box::new(self.create(conn, run).await?),
            Op::ReopenRun(run, request) => Box::new(self.reopen(conn, run, *request).await?),
            Op::TakeRun(run, lease) => Box::new(self.take(conn, *run, *lease).await?),
            Op::RenewRuns(leases) => Box::new(self.renew(conn, leases).await?),
            Op::GiveUpRuns(roots) => Box::new(self.give_up(conn, roots).await?),
            Op::ReleaseRuns(leases) => Box::new(self.release(conn, leases).await?),
            Op::CancelRun(run, by) => Box::new(self.cancel(conn, *run, by).await?),
            Op::Resolve(resolve) => Box::new(self.resolve(conn, resolve).await?),
            Op::Settle(settle) => Box::new(self.settle(conn, settle).await?),
            Op::ExpireApprovals(roots) => {
                for root in roots {
                    self.expire_actions(conn, *root).await?;
                }
                Box::new(())
            }
            Op::Revoke(revoke) => Box::new(self.revoke(conn, revoke).await?),
            Op::EnterExport(tenant, actor, taken) => {
                self.enter_export(tenant, actor, taken);
                Box::new(())
            }
            Op::Erase(erasure) => Box::new(self.erase(conn, erasure).await?),
            Op::Define(version, id) => Box::new(self.define(conn, version, *id).await?),
            Op::EditPlan(edit) => Box::new(self.edit_plan(conn, edit).await?),
            Op::CancelSession(cancel) => Box::new(self.cancel_session(conn, cancel).await?),
            Op::SweepSessions(sessions, now_us, unconfirmed_us) => {
                let mut swept = 0;
                for session in sessions {
                    swept += u32::from(self.sweep_session(conn, *session, *now_us, *unconfirmed_us).await?);
                }
                Box::new(swept)
            }
        })
    }

    async fn abandon(&self, conn: &mut Conn, decision: DecisionId, scope: Option<&Arc<str>>) -> Result<(), Fault> {
        self.close_unbegun(conn, decision, &self.writing.owner).await?;
        if let Some(scope) = scope {
            self.release_claim(conn, scope, decision).await?;
        }
        Ok(())
    }

    /// Closes an open decision for which no work was started: its intents were never sent. Nothing changes if the decision
    /// was not written, or if its owner has closed it.
    pub(super) async fn close_unbegun(
        &self,
        conn: &mut Conn,
        decision: DecisionId,
        owner: &Value,
    ) -> Result<(), Fault> {
        const OPEN: &str = "id = $1 AND owner = $2 AND status = 'open'";
        let calls = sql!(
            "{}",
            end_started(
                FailureCode::NotRecorded,
                &format!("decision_id = $1 AND EXISTS (SELECT 1 FROM decision_log WHERE {OPEN})")
            )
        );
        let close = sql!(
            "{} WHERE {OPEN}",
            close("not begun: its record was not acknowledged in time")
        );
        let values = values![decision, owner.clone()];
        self.end_unrecorded(conn, calls, values.clone(), FailureCode::NotRecorded)
            .await?;
        conn.execute(close, values).await?;
        Ok(())
    }

    async fn mark_unanswered(&self, conn: &mut Conn, decision: DecisionId) -> Result<(), Fault> {
        let close = sql!(
            "{} WHERE id = $1 AND owner = $2",
            close("not answered: its record was not acknowledged in time")
        );
        conn.execute(close, values![decision, self.writing.owner.clone()])
            .await?;
        Ok(())
    }

    async fn close_lost(&self, conn: &mut Conn, decision: DecisionId) -> Result<Recovered, Fault> {
        let close = sql!(
            "{} WHERE id = $1 AND owner = $2 AND status = 'open'",
            close("its outcome could not be recorded")
        );
        let decisions = conn
            .execute(close, values![decision, self.writing.owner.clone()])
            .await?;
        let calls = self.recover_calls(conn).await?;
        Ok(Recovered { decisions, calls })
    }

    async fn renew_lease(&self, conn: &mut Conn) -> Result<(), Fault> {
        let values = values![
            self.writing.owner.clone(),
            self.config.lease,
            self.writing.serves.clone()
        ];
        let renew = "INSERT INTO instance (id, started_at, lease_until, url) VALUES ($1, @now, @now + $2, $3) \
                     ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until";
        conn.execute(renew, values).await?;
        Ok(())
    }

    async fn end_lease(&self, conn: &mut Conn) -> Result<(), Fault> {
        let end = "UPDATE instance SET lease_until = @now WHERE id = $1";
        conn.execute(end, values![self.writing.owner.clone()]).await?;
        Ok(())
    }

    /// Closes decisions of owners without a lease, except its own. A run owns its decision and has its own lease.
    async fn sweep(&self, conn: &mut Conn) -> Result<Recovered, Fault> {
        let close = sql!(
            "{} WHERE status = 'open' AND owner <> $1 AND owner <> id \
             AND owner NOT IN (SELECT id FROM instance WHERE lease_until > @now)",
            close("the process that ran it ended before its outcome was recorded")
        );
        let decisions = conn.execute(close, values![self.writing.owner.clone()]).await?;
        let calls = self.recover_calls(conn).await?;
        Ok(Recovered { decisions, calls })
    }

    /// Ends the started calls of closed decisions.
    async fn recover_calls(&self, conn: &mut Conn) -> Result<u64, Fault> {
        let calls = sql!(
            "{}",
            end_started(
                FailureCode::InDoubt,
                "(SELECT d.status FROM decision_log d WHERE d.id = tool_invocation_log.decision_id) = 'closed'"
            )
        );
        self.end_unrecorded(conn, calls, vec![], FailureCode::InDoubt).await
    }

    /// True if there may be more to delete.
    async fn prune(&self, conn: &mut Conn) -> Result<bool, Fault> {
        // Not those whose run is still active. The outer condition is repeated, because PostgreSQL evaluates it again if
        // the claim is renewed meanwhile.
        let claims = sql!(
            "DELETE FROM idempotency_key WHERE expires_at <= @now AND scope IN \
             (SELECT scope FROM idempotency_key WHERE expires_at <= @now AND NOT {RUN_ACTIVE} \
             ORDER BY expires_at LIMIT {PRUNED_AT_ONCE})"
        );
        let claims = conn.execute(claims, vec![]).await?;
        // Dead instances that own no open decision.
        let instances = "DELETE FROM instance WHERE lease_until <= @now - $1 \
                         AND NOT EXISTS (SELECT 1 FROM decision_log WHERE owner = instance.id AND status = 'open')";
        conn.execute(instances, values![INSTANCE_KEPT]).await?;
        // No run is kept longer than the logs.
        let runs = match self.config.runs_kept.into_iter().chain(self.config.records_kept).min() {
            Some(kept) => self.prune_runs_of(conn, kept, None).await?,
            None => false,
        };
        let records = match self.config.records_kept {
            Some(kept) => self.prune_records(conn, kept).await?,
            None => false,
        };
        let logins = sql!(
            "DELETE FROM console_session WHERE id IN \
             (SELECT id FROM console_session WHERE expires_at <= @now ORDER BY expires_at LIMIT {PRUNED_AT_ONCE})"
        );
        let logins = conn.execute(logins, vec![]).await?;
        Ok(claims >= PRUNED_AT_ONCE || logins >= PRUNED_AT_ONCE || runs || records)
    }

    /// Deletes ended sessions, runs and threads. Runs of sessions are kept as long as their sessions, so these come first.
    pub(super) async fn prune_runs_of(&self, conn: &mut Conn, kept: Duration, of: Of<'_>) -> Result<bool, Fault> {
        let kept = kept_of(kept, of);
        Ok(self.prune_planning(conn, &kept).await?
            | self.prune_runs(conn, &kept).await?
            | self.prune_threads(conn, &kept).await?)
    }
}

/// Closes an open row of the decision log as an error, with the type and intent derived from its started calls.
pub(super) fn close(detail: &str) -> String {
    format!(
        "UPDATE decision_log SET status = 'closed', recovered = TRUE, closed_at = @now, \
         decision_type = CASE WHEN EXISTS (SELECT 1 FROM tool_invocation_log t \
         WHERE t.decision_id = decision_log.id AND t.started_at IS NOT NULL) THEN '{}' ELSE '{}' END, \
         outcome_category = '{}', \
         intent = COALESCE((SELECT t.tool FROM tool_invocation_log t WHERE t.decision_id = decision_log.id \
         AND t.started_at IS NOT NULL ORDER BY t.side_effect DESC, t.sequence DESC LIMIT 1), 'none'), \
         error_detail = '{}'",
        DecisionType::InvokeTool,
        DecisionType::RespondOnly,
        Outcome::Internal,
        detail.replace('\'', "''")
    )
}

/// Ends those of the started calls without a recorded outcome: they were sent and are in doubt, or were never sent. For
/// [`Batch::end_unrecorded`].
pub(super) fn end_started(code: FailureCode, which: &str) -> String {
    let (status, message) = match code {
        FailureCode::InDoubt => (CallStatus::InDoubt, "sent, and its outcome was not recorded"),
        _ => (CallStatus::NotSent, "its record was not acknowledged in time"),
    };
    let sent = match status {
        CallStatus::NotSent => ", started_at = NULL",
        _ => "",
    };
    format!(
        "UPDATE tool_invocation_log SET status = '{status}'{sent}, error_code = '{code}', error_message = '{message}' \
         WHERE status = '{}' AND {which} RETURNING id, decision_id AS run_id, tool, side_effect",
        CallStatus::Started
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::audit::{Signer, Trail};
    use super::super::config::StoreConfig;
    use super::super::connect::Target;
    use super::super::migrate;
    use super::super::table::Writing;
    use super::super::texts::Known;
    use super::*;
    use serde_json::value::RawValue;

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
        let config = StoreConfig::new(url, InstanceId::new());
        let batch = Batch {
            writing: &Writing::new(&config),
            config: &config,
            signer: Some(&Signer::new("a key")),
            trail: Trail::default(),
            known: &Known::default(),
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
                agent_id: None,
                time_zone: None,
                tools_subset: None,
                history_entries: 0,
                trace_id: None,
                request_id: "".into(),
                created_at: 0,
            };
            let intent = OpenCall {
                id: ActionId::new(),
                decision: decision.id,
                tenant: decision.tenant.clone(),
                sequence: 1,
                turn: Some(1),
                tool: Some(Arc::new(tool())),
                name: "t".into(),
                words: None,
                arguments: RawValue::from_string("{}".to_owned()).unwrap().into(),
                policy: None,
                idempotency_key: Some("k".into()),
                created_at: 0,
            };
            let intended = acts.then_some(Fact::Intended(intent));
            let facts = [Fact::Opened(decision)].into_iter().chain(intended).collect();
            let tickets = [
                Ticket::silent(Op::RenewLease),
                Ticket::silent(Op::Commit(Commit::of_process(facts).into())),
            ];
            let attempt = batch.run(&mut conn, &tickets).await;
            assert!(matches!(attempt, Attempt::Committed(_)));
            let level = conn.one::<i64>("PRAGMA synchronous", vec![]).await.unwrap();
            // 2 is FULL, 1 is NORMAL.
            assert_eq!(level, Some(if acts { 2 } else { 1 }));
        }
    }
}
