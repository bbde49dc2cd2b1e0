//! Idempotency keys: one protocol for every request that takes a key.

use std::sync::Arc;

use super::batch::Batch;
use super::db::{Conn, Row, Value};
use super::error::Fault;
use super::recovered;
use super::runs::id;
use crate::domain::ids::{DecisionId, RunId};
use crate::ports::claims::{Claim, Claimant, Claimed};
use crate::ports::records::StoredAnswer;

/// What a row of [`Statements::claimed`](super::statements::Statements) is for a request that makes the same claim. `own`: what that request would lead to.
pub(super) fn found(row: &Row, claim: &Claim, own: Option<&str>) -> Result<Claimed, sqlx::Error> {
    let decision = row.text(1)?;
    if row.text(0)? != *claim.fingerprint {
        return Ok(Claimed::Mismatch);
    }
    // From a commit of this request that was not acknowledged, or from an operation that is harmless to repeat.
    if own == Some(decision.as_str()) {
        return Ok(Claimed::New);
    }
    // A run owns its decision; a process owns that of a chat request.
    if row.opt_text(6)?.as_deref() == Some(decision.as_str()) {
        let run = RunId::parse(&decision);
        let run =
            run.ok_or_else(|| sqlx::Error::Decode(format!("a claim names {decision:?}, which is no run").into()))?;
        return Ok(Claimed::Run(run));
    }
    let answer = |status, body: String| {
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
    let (status, body) = recovered::answer(&decision, &row.opt_text(5)?.unwrap_or_default());
    Ok(answer(status, body))
}

impl Batch<'_> {
    /// Claims a key for what the request leads to. A new decision is opened immediately, since the next claim in this
    /// batch may use the same key.
    pub(super) async fn claim_for(&self, conn: &mut Conn, claim: &Claim, by: &Claimant) -> Result<Claimed, Fault> {
        match by {
            Claimant::Run(run) => {
                let run = run.to_string();
                self.claim(conn, claim, &run, Some(&run)).await
            }
            Claimant::Decision(decision) => {
                let id = decision.id.to_string();
                let claimed = self.claim(conn, claim, &id, Some(&id)).await?;
                if claimed == Claimed::New {
                    let mut row = Vec::new();
                    self.statements.decisions.begin(decision, self.writing, &mut row);
                    self.statements.decisions.write_begun(conn, row).await?;
                }
                Ok(claimed)
            }
        }
    }

    /// Claims a key for a decision or a run, by its id. `own`: an existing claim with this id is this request's own.
    pub(super) async fn claim(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        id: &str,
        own: Option<&str>,
    ) -> Result<Claimed, Fault> {
        let values = vec![
            Value::shared(&claim.scope),
            Value::shared(&claim.fingerprint),
            Value::text(id),
        ];
        if conn.execute(&self.statements.claim, values).await? == 1 {
            return Ok(Claimed::New);
        }
        let row = conn
            .first(&self.statements.claimed, vec![Value::shared(&claim.scope)])
            .await?
            .ok_or_else(|| Fault::Unavailable("a claim vanished while it was read".into()))?;
        Ok(found(&row, claim, own)?)
    }

    /// Deletes a claim that led to nothing, so that the key can be claimed again.
    pub(super) async fn release_claim(
        &self,
        conn: &mut Conn,
        scope: &Arc<str>,
        of: impl std::fmt::Display + Send,
    ) -> Result<(), Fault> {
        let values = vec![Value::shared(scope), id(of)];
        conn.execute(&self.statements.abandon_claim, values).await?;
        Ok(())
    }

    /// Keeps the answer for a retried request. A 429 or 503 is not kept: its claim is deleted, so the retry is a new
    /// request.
    pub(super) async fn answer(
        &self,
        conn: &mut Conn,
        decision: DecisionId,
        answer: &StoredAnswer,
    ) -> Result<(), Fault> {
        if matches!(answer.status, 429 | 503) {
            return self.release_claim(conn, &answer.scope, decision).await;
        }
        let values = vec![
            Value::Int(Some(i64::from(answer.status))),
            Value::shared(&answer.body),
            Value::shared(&answer.scope),
            id(decision),
        ];
        // No row: the claim expired while the decision ran. The answer is still sent.
        conn.execute(&self.statements.answer, values).await?;
        Ok(())
    }
}
