//! Every statement that writes, as text for one of the databases.

use super::actions::ActionStatements;
use super::audit::AuditStatements;
use super::db::{Dialect, Sql};
use super::decisions::{CALL, DECISION};
use super::planning::PlanningStatements;
use super::recovered;
use super::runs::{RUN_ACTIVE, RunStatements};
use super::table::Writes;
use crate::ports::records::{ClosedCall, ClosedDecision, OpenCall, OpenDecision};

/// The statements, built once. Each comment lists the parameters, and after `→` the returned columns.
pub(super) struct Statements {
    pub(super) begin: Sql,
    pub(super) commit: Sql,
    pub(super) rollback: Sql,
    pub(super) decisions: Writes<OpenDecision, ClosedDecision>,
    pub(super) calls: Writes<OpenCall, ClosedCall>,
    /// scope, fingerprint, decision. Replaces an expired claim, unless the run that it created is still active.
    pub(super) claim: Sql,
    /// As [`claimed`].
    pub(super) claimed: Sql,
    /// status, body, scope, decision.
    pub(super) answer: Sql,
    /// instance, lease in microseconds.
    pub(super) beat: Sql,
    /// instance: closes decisions of owners without a lease, except its own. A run owns its decision and has its own
    /// lease.
    pub(super) recover_decisions: Sql,
    /// Started calls of closed decisions → call, decision, tool, whether it has a side effect.
    pub(super) recover_calls: Sql,
    /// decision, owner: closes it, with an unknown outcome.
    pub(super) lose: Sql,
    /// decision, owner: it was recorded, but its caller received no answer.
    pub(super) mark_unanswered: Sql,
    /// decision, owner: closes it; no work was started for it.
    pub(super) abandon: Sql,
    /// decision: its intents were never sent → as [`Statements::recover_calls`].
    pub(super) abandon_calls: Sql,
    /// scope, decision: deletes its claim, so that the key can be claimed again.
    pub(super) abandon_claim: Sql,
    /// Deletes expired claims, at most [`PRUNED_AT_ONCE`]; not those whose run is still active.
    pub(super) prune_claims: Sql,
    /// Deletes expired logins, at most [`PRUNED_AT_ONCE`].
    pub(super) prune_sessions: Sql,
    /// Deletes dead instances that own no open decision.
    pub(super) prune_instances: Sql,
    /// instance: its lease ends now.
    pub(super) release_instance: Sql,
    pub(super) runs: RunStatements,
    pub(super) actions: ActionStatements,
    pub(super) planning: PlanningStatements,
    pub(super) audit: AuditStatements,
}

/// Claims are kept for 24 h, and longer while the run that they created is active.
const CLAIM_LIFE_US: i64 = 24 * 3600 * 1_000_000;
/// Few enough that the transaction does not block others.
pub(super) const PRUNED_AT_ONCE: u64 = 1000;

impl Statements {
    /// Longer than a screen: a table, with one row for each statement.
    pub(super) fn new(dialect: Dialect) -> Self {
        let now = dialect.now();
        Self {
            begin: dialect.begin().into(),
            commit: "COMMIT".into(),
            rollback: "ROLLBACK".into(),
            // The owner knows the outcome, so it replaces what recovery assumed when the lease expired during an outage.
            decisions: Writes::new(
                dialect,
                "decision_log",
                "id",
                DECISION,
                |closed| &closed.open,
                "decision_log.owner = excluded.owner",
            ),
            calls: Writes::new(
                dialect,
                "tool_invocation_log",
                "decision_id, sequence",
                CALL,
                |closed| &closed.open,
                "tool_invocation_log.id = excluded.id",
            ),
            claim: format!(
                "INSERT INTO idempotency_key (scope, fingerprint, decision_id, created_at, expires_at) \
                 VALUES ($1, $2, $3, {now}, {now} + {CLAIM_LIFE_US}) \
                 ON CONFLICT (scope) DO UPDATE SET fingerprint = excluded.fingerprint, \
                 decision_id = excluded.decision_id, created_at = excluded.created_at, \
                 expires_at = excluded.expires_at, answer_status = NULL, answer_body = NULL \
                 WHERE idempotency_key.expires_at <= excluded.created_at AND NOT {RUN_ACTIVE}"
            )
            .into(),
            claimed: claimed(dialect).into(),
            answer: "UPDATE idempotency_key SET answer_status = $1, answer_body = $2 \
                     WHERE scope = $3 AND decision_id = $4"
                .into(),
            beat: format!(
                "INSERT INTO instance (id, started_at, lease_until, url) VALUES ($1, {now}, {now} + $2, $3) \
                 ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until"
            )
            .into(),
            recover_decisions: format!(
                "{} WHERE status = 'open' AND owner <> $1 AND owner <> id \
                 AND owner NOT IN (SELECT id FROM instance WHERE lease_until > {now})",
                recovered::close("the process that ran it ended before its outcome was recorded")
            )
            .into(),
            recover_calls: "UPDATE tool_invocation_log SET status = 'in_doubt', error_code = 'in_doubt', \
                            error_message = 'sent, and its outcome was not recorded' WHERE status = 'started' \
                            AND (SELECT d.status FROM decision_log d WHERE d.id = tool_invocation_log.decision_id) \
                            = 'closed' RETURNING id, decision_id, tool, side_effect"
                .into(),
            lose: format!(
                "{} WHERE id = $1 AND owner = $2 AND status = 'open'",
                recovered::close("its outcome could not be recorded")
            )
            .into(),
            mark_unanswered: format!(
                "{} WHERE id = $1 AND owner = $2",
                recovered::close("not answered: its record was not acknowledged in time")
            )
            .into(),
            abandon: "UPDATE decision_log SET status = 'closed', recovered = TRUE, decision_type = 'RESPOND_ONLY', \
                      outcome_category = 'ERROR:INTERNAL', intent = 'none', \
                      error_detail = 'not begun: its record was not acknowledged in time' \
                      WHERE id = $1 AND owner = $2 AND status = 'open'"
                .into(),
            abandon_calls: "UPDATE tool_invocation_log SET status = 'not_sent', started_at = NULL, \
                            error_code = 'not_recorded', error_message = 'its record was not acknowledged in time' \
                            WHERE decision_id = $1 AND status = 'started' \
                            RETURNING id, decision_id, tool, side_effect"
                .into(),
            abandon_claim:
                "DELETE FROM idempotency_key WHERE scope = $1 AND decision_id = $2 AND answer_status IS NULL".into(),
            // The outer condition is repeated, because PostgreSQL evaluates it again if the claim is renewed meanwhile.
            prune_claims: format!(
                "DELETE FROM idempotency_key WHERE expires_at <= {now} AND scope IN \
                 (SELECT scope FROM idempotency_key WHERE expires_at <= {now} AND NOT {RUN_ACTIVE} \
                 ORDER BY expires_at LIMIT {PRUNED_AT_ONCE})"
            )
            .into(),
            prune_sessions: format!(
                "DELETE FROM console_session WHERE id IN \
                 (SELECT id FROM console_session WHERE expires_at <= {now} ORDER BY expires_at LIMIT {PRUNED_AT_ONCE})"
            )
            .into(),
            prune_instances: format!(
                "DELETE FROM instance WHERE lease_until <= {now} - $1 \
                 AND NOT EXISTS (SELECT 1 FROM decision_log WHERE owner = instance.id AND status = 'open')"
            )
            .into(),
            release_instance: format!("UPDATE instance SET lease_until = {now} WHERE id = $1").into(),
            runs: RunStatements::new(dialect),
            actions: ActionStatements::new(dialect),
            planning: PlanningStatements::new(dialect),
            audit: AuditStatements::new(dialect),
        }
    }
}

/// scope → fingerprint, decision, status and body of the answer; of the decision: status, request id, owner. No
/// row: the key is unclaimed, or its claim has expired.
fn claimed(dialect: Dialect) -> String {
    format!(
        "SELECT idempotency_key.fingerprint, idempotency_key.decision_id, answer_status, answer_body, d.status, \
         d.request_id, d.owner FROM idempotency_key LEFT JOIN decision_log d ON d.id = idempotency_key.decision_id \
         WHERE scope = $1 AND (expires_at > {} OR {RUN_ACTIVE})",
        dialect.now()
    )
}
