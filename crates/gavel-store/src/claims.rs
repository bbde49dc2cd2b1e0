//! Idempotency keys: one protocol for every request that takes a key.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::db::{Conn, Value, sql, values};
use super::decisions::DECISIONS;
use super::error::Fault;
use super::queue::Batch;
use crate::domain::ids::{DecisionId, RunId};
use crate::ports::claims::{Claim, Claimant, Claimed};
use crate::ports::records::StoredAnswer;

/// Claims are kept for 24 h, and longer while the run that they created is active.
const CLAIM_LIFE_US: i64 = 24 * 3600 * 1_000_000;

/// Condition on a claim: the run that it created has not ended.
pub(super) const RUN_ACTIVE: &str = "EXISTS (SELECT 1 FROM agent_run \
     WHERE agent_run.id = idempotency_key.decision_id AND agent_run.completed_at IS NULL)";

/// What holds a key, and what is known of its decision.
#[derive(Deserialize)]
pub(super) struct StoredClaim {
    fingerprint: String,
    decision_id: String,
    answer_status: Option<u16>,
    answer_body: Option<String>,
    status: Option<String>,
    request_id: Option<String>,
    owner: Option<String>,
}

impl StoredClaim {
    /// scope. No row: the key is unclaimed, or its claim has expired.
    pub(super) fn select() -> &'static str {
        sql!(
            "SELECT claim.fingerprint, claim.decision_id, answer_status, answer_body, d.status, d.request_id, d.owner \
             FROM idempotency_key claim LEFT JOIN decision_log d ON d.id = claim.decision_id \
             WHERE scope = $1 AND (expires_at > @now OR {})",
            RUN_ACTIVE.replace("idempotency_key", "claim")
        )
    }

    /// What it is for a request that makes the same claim. `own`: what that request would lead to.
    pub(super) fn found(self, claim: &Claim, own: Option<&str>) -> Result<Claimed, sqlx::Error> {
        let decision = self.decision_id;
        if self.fingerprint != *claim.fingerprint {
            return Ok(Claimed::Mismatch);
        }
        // From a commit of this request that was not acknowledged, or from an operation that is harmless to repeat.
        if own == Some(decision.as_str()) {
            return Ok(Claimed::New);
        }
        // A run owns its decision; a process owns that of a chat request.
        if self.owner.as_ref() == Some(&decision) {
            let no_run = || sqlx::Error::Decode(format!("a claim names {decision:?}, which is no run").into());
            return RunId::parse(&decision).map(Claimed::Run).ok_or_else(no_run);
        }
        let (status, body) = match (self.answer_status, self.answer_body) {
            (Some(status), Some(body)) => (status, body),
            _ if self.status.as_deref() == Some("open") => return Ok(Claimed::Running),
            _ => unrecorded(&decision, &self.request_id.unwrap_or_default()),
        };
        Ok(Claimed::Answered(StoredAnswer {
            scope: Arc::clone(&claim.scope),
            status,
            body: body.into(),
        }))
    }
}

impl Batch<'_> {
    /// Claims a key for what the request leads to. A new decision is opened immediately, since the next claim in this
    /// batch may use the same key.
    pub(super) async fn claim_for(&self, conn: &mut Conn, claim: &Claim, by: &Claimant) -> Result<Claimed, Fault> {
        let id = match by {
            Claimant::Run(run) => run.to_string(),
            Claimant::Decision(decision) => decision.id.to_string(),
        };
        let claimed = self.claim(conn, claim, &id, Some(&id)).await?;
        if let (Claimant::Decision(decision), Claimed::New) = (by, &claimed) {
            DECISIONS.open(conn, decision, self.writing).await?;
        }
        Ok(claimed)
    }

    /// Claims a key for a decision or a run, by its id. `own`: an existing claim with this id is this request's own.
    pub(super) async fn claim(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        id: &str,
        own: Option<&str>,
    ) -> Result<Claimed, Fault> {
        // Replaces an expired claim, unless the run that it created is still active.
        let insert = sql!(
            "INSERT INTO idempotency_key (scope, fingerprint, decision_id, created_at, expires_at) \
             VALUES ($1, $2, $3, @now, @now + {CLAIM_LIFE_US}) \
             ON CONFLICT (scope) DO UPDATE SET fingerprint = excluded.fingerprint, \
             decision_id = excluded.decision_id, created_at = excluded.created_at, \
             expires_at = excluded.expires_at, answer_status = NULL, answer_body = NULL \
             WHERE idempotency_key.expires_at <= excluded.created_at AND NOT {RUN_ACTIVE}"
        );
        if conn
            .execute(insert, values![&claim.scope, &claim.fingerprint, id])
            .await?
            == 1
        {
            return Ok(Claimed::New);
        }
        let stored: Option<StoredClaim> = conn.one(StoredClaim::select(), values![&claim.scope]).await?;
        let stored = stored.ok_or_else(|| Fault::Unavailable("a claim vanished while it was read".into()))?;
        Ok(stored.found(claim, own)?)
    }

    /// Deletes a claim that led to nothing, so that the key can be claimed again.
    pub(super) async fn release_claim(
        &self,
        conn: &mut Conn,
        scope: &Arc<str>,
        of: impl Into<Value>,
    ) -> Result<(), Fault> {
        let delete = "DELETE FROM idempotency_key WHERE scope = $1 AND decision_id = $2 AND answer_status IS NULL";
        conn.execute(delete, vec![scope.into(), of.into()]).await?;
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
        // No row: the claim expired while the decision ran. The answer is still sent.
        let keep =
            "UPDATE idempotency_key SET answer_status = $1, answer_body = $2 WHERE scope = $3 AND decision_id = $4";
        let values = values![u32::from(answer.status), &answer.body, &answer.scope, decision];
        conn.execute(keep, values).await?;
        Ok(())
    }
}

/// The answer to a retried request whose decision was closed without its outcome: status and
/// `application/problem+json` body. Built on demand from the row, so it is the same each time.
fn unrecorded(decision_id: &str, request_id: &str) -> (u16, String) {
    let body = json!({
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "code": "outcome_unrecorded",
        "detail": format!(
            "The first request with this key ended before its outcome was recorded. It is not repeated; \
             see decision {decision_id} for what is known."
        ),
        "request_id": request_id,
        "decision_id": decision_id,
    });
    (500, body.to_string())
}
