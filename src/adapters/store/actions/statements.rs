//! Every statement that writes actions, grants and threads.

use super::super::db::{Dialect, Sql};
use super::super::transition::{action_may_be_settled_as, action_may_become, any, run_may_become};
use crate::domain::action::ActionStatus::{self, Approved, Completed, Executing, Expired, Failed, InDoubt, Rejected};
use crate::domain::agent_run::RunStatus;

/// The statements, built once. Each comment lists the parameters, and after `→` the returned columns.
pub(in super::super) struct ActionStatements {
    /// thread, tenant, user, agent, created at.
    pub(super) new_thread: Sql,
    /// thread, tenant, user: a row if the user owns the thread. Locks it, so that concurrent runs of a thread see each
    /// other.
    pub(super) hold_thread: Sql,
    /// thread, run → another run of the thread that is active or queued.
    pub(super) going: Sql,
    /// thread, run → when the latest other run of the thread was created.
    pub(super) latest: Sql,
    /// run, role, action → the number of a line already written, in a commit that was not acknowledged.
    pub(super) said: Sql,
    /// thread → the next number.
    pub(super) count_message: Sql,
    /// thread, number, run, action, role, body.
    pub(super) say: Sql,
    /// run → the thread of its outermost run.
    pub(super) thread_of: Sql,
    /// run, action, approval, its lifetime in microseconds, sequence, server, tool, digest, arguments, hash, model,
    /// policy, details, status, grant, whether it has a side effect.
    pub(super) create: Sql,
    /// grant, action: a row if the grant is valid, or if the action already started, in a commit of this process that
    /// was not acknowledged. Locks the grant against revocation until this transaction ends.
    pub(super) grant_is_valid: Sql,
    /// grant: counts one more use.
    pub(super) use_grant: Sql,
    /// action: a row if it is approved and may start. An action that is executing was started by this process, in a
    /// commit that was not acknowledged.
    pub(super) may_begin: Sql,
    /// action: changes from approved to executing.
    pub(super) begin: Sql,
    /// action, status, code, message → run, tool, start time, whether it has a side effect, approval.
    pub(super) end: Sql,
    /// action: expires its open approval request, because its run continued without it → as
    /// [`ActionStatements::expire`].
    pub(super) drop_request: Sql,
    /// The same, for a run that has ended.
    pub(super) drop_with_run: Sql,
    /// action: a row if it is awaiting approval.
    pub(super) asks: Sql,
    /// run: a row if it is awaiting approval.
    pub(super) waits: Sql,
    /// run, in-doubt actions that it waits for or NULL: changes to awaiting approval.
    pub(super) suspend: Sql,
    /// root: a row if it, or a child run that has not ended, is to be cancelled.
    pub(super) to_be_cancelled: Sql,
    /// action → status, resolution, by, reason, whether it has expired, user, server, tool, details, tenant, run,
    /// digest.
    pub(super) request: Sql,
    /// action → its arguments and details, and the audit entry of its approval request.
    pub(super) entered: Sql,
    /// action, status, resolution, by, reason, grant.
    pub(super) resolve: Sql,
    /// tenant, user, server, tool, recipients, digest → the existing grant.
    pub(super) live_grant: Sql,
    /// grant, tenant, user, server, tool, recipients, digest, action, by.
    pub(super) new_grant: Sql,
    /// root: the waiting runs become ready for the next worker.
    pub(super) wake: Sql,
    /// root: expires approval requests that are due, and approvals that were not used in time → action, run, tool,
    /// approval, resolution. The reason of an approver is kept.
    pub(super) expire: Sql,
    /// run: expires open approval requests and unused approvals of an ended run and of the runs below it → as
    /// [`ActionStatements::expire`].
    pub(super) close: Sql,
    /// root: started actions without a recorded outcome → action, run, tool, whether it has a side effect.
    pub(super) mark_in_doubt: Sql,
    /// action → status, settled by; of its outermost run: status, in-doubt calls, session, and what it waits for while
    /// it is suspended.
    pub(super) in_doubt: Sql,
    /// action, status, code, message, by → run, tool. Replaces an earlier settlement whose resume never started.
    pub(super) settle: Sql,
    /// action: a row if a person has settled it.
    pub(super) is_settled: Sql,
    /// root → the settled actions of its runs, if it works for a planning session.
    pub(super) settled_of: Sql,
    /// root → its runs that have in-doubt calls, with these calls.
    pub(super) in_doubt_of: Sql,
    /// run, its remaining in-doubt calls.
    pub(super) settle_run: Sql,
    /// action, status, code, message, run: the same for the tool-call log.
    pub(super) settle_record: Sql,
    /// grant, tenant, user or NULL, by → user, server, tool, recipients.
    pub(super) revoke: Sql,
    /// The same parameters: a row if the same user has already revoked it.
    pub(super) revoked: Sql,
}

/// Minimum time, in microseconds, that an approved action has to start, even if it was approved just before its expiry.
const TO_BEGIN_US: i64 = 60_000_000;

impl ActionStatements {
    /// Longer than a screen: a table, with one row for each statement.
    pub(in super::super) fn new(dialect: Dialect) -> Self {
        let now = dialect.now();
        let lock = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE",
        };
        let drop = |reason: &str| -> Sql {
            format!(
                "UPDATE agent_action SET status = 'expired', completed_at = {now}, reason = '{reason}' \
                 WHERE id = $1 AND status = 'awaiting_confirmation' RETURNING id, run_id, tool, approval_id, resolution"
            )
            .into()
        };
        Self {
            new_thread: "INSERT INTO thread (id, tenant, user_id, agent_id, created_at, updated_at) \
                         VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (id) DO NOTHING"
                .into(),
            hold_thread: format!("SELECT id FROM thread WHERE id = $1 AND tenant = $2 AND user_id = $3 {lock}").into(),
            going: "SELECT id FROM agent_run WHERE thread_id = $1 AND id <> $2 AND (status = 'queued' \
                    OR status = 'running' OR status = 'awaiting_confirmation') ORDER BY created_at, id LIMIT 1"
                .into(),
            latest: "SELECT created_at FROM agent_run WHERE thread_id = $1 AND id <> $2 ORDER BY created_at DESC, id DESC LIMIT 1"
                .into(),
            said: "SELECT number FROM thread_message WHERE run_id = $1 AND role = $2 AND COALESCE(action_id, '') = $3"
                .into(),
            count_message: format!(
                "UPDATE thread SET messages = messages + 1, updated_at = {now} WHERE id = $1 RETURNING messages"
            )
            .into(),
            say: format!(
                "INSERT INTO thread_message (thread_id, number, run_id, action_id, role, body, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, {now})"
            )
            .into(),
            thread_of: "SELECT root.thread_id FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
                        WHERE run.id = $1 AND root.thread_id IS NOT NULL"
                .into(),
            create: format!(
                "INSERT INTO agent_action (id, approval_id, run_id, root_id, thread_id, tenant, user_id, project_id, \
                 agent_id, sequence, server, tool, tool_digest, arguments, input_hash, model, policy, details, status, \
                 created_at, expires_at, grant_id, side_effect, started_at) \
                 SELECT $2, $3, run.id, run.root_id, root.thread_id, run.tenant, run.user_id, run.project_id, run.agent_id, \
                 CAST($5 AS BIGINT), $6, $7, $8, $9, $10, $11, $12, $13, $14, {now}, {now} + CAST($4 AS BIGINT), $15, $16, \
                 CASE WHEN CAST($4 AS BIGINT) IS NULL THEN {now} ELSE NULL END \
                 FROM agent_run run JOIN agent_run root ON root.id = run.root_id WHERE run.id = $1 \
                 ON CONFLICT (id) DO NOTHING"
            )
            .into(),
            grant_is_valid: format!(
                "SELECT id FROM approval_grant WHERE id = $1 AND (revoked_at IS NULL \
                 OR EXISTS (SELECT 1 FROM agent_action WHERE agent_action.id = $2)) {lock}"
            )
            .into(),
            use_grant: format!("UPDATE approval_grant SET uses = uses + 1, last_used_at = {now} WHERE id = $1").into(),
            may_begin: format!(
                "SELECT id FROM agent_action WHERE id = $1 AND (status = 'executing' \
                 OR (status = 'approved' AND expires_at > {now}))"
            )
            .into(),
            begin: format!(
                "UPDATE agent_action SET status = 'executing', started_at = {now} WHERE id = $1 AND {}",
                action_may_become(Executing)
            )
            .into(),
            end: format!(
                "UPDATE agent_action SET status = $2, completed_at = {now}, error_code = $3, error_message = $4 \
                 WHERE id = $1 AND {} RETURNING run_id, tool, started_at, side_effect, approval_id",
                any("$2", &[Completed, Failed, InDoubt], ActionStatus::as_str, action_may_become)
            )
            .into(),
            drop_request: drop("its run continued; the action was not executed"),
            drop_with_run: drop("its run ended first"),
            asks: "SELECT id FROM agent_action WHERE id = $1 AND status = 'awaiting_confirmation'".into(),
            waits: "SELECT id FROM agent_run WHERE id = $1 AND status = 'awaiting_confirmation'".into(),
            suspend: format!(
                "UPDATE agent_run SET status = 'awaiting_confirmation', holder = NULL, lease_id = NULL, \
                 lease_until = NULL, takes = 0, waits_for = $2 WHERE id = $1 AND {}",
                run_may_become(RunStatus::AwaitingConfirmation)
            )
            .into(),
            to_be_cancelled: "SELECT id FROM agent_run WHERE root_id = $1 AND cancel_requested AND completed_at IS NULL LIMIT 1"
                .into(),
            request: format!(
                "SELECT status, resolution, resolved_by, reason, expires_at <= {now}, user_id, server, tool, details, \
                 tenant, run_id, tool_digest FROM agent_action WHERE id = $1"
            )
            .into(),
            entered: "SELECT q.arguments, q.details, a.detail FROM agent_action q \
                      JOIN audit a ON a.subject = q.id AND a.kind = 'approval_requested' WHERE q.id = $1"
                .into(),
            resolve: format!(
                "UPDATE agent_action SET status = $2, resolution = $3, resolved_by = $4, reason = $5, grant_id = $6, \
                 resolved_at = {now}, completed_at = CASE WHEN $2 = 'rejected' THEN {now} ELSE NULL END, \
                 expires_at = CASE WHEN $2 = 'approved' AND expires_at < {now} + {TO_BEGIN_US} THEN {now} + {TO_BEGIN_US} \
                 ELSE expires_at END WHERE id = $1 AND {}",
                any("$2", &[Approved, Rejected], ActionStatus::as_str, action_may_become)
            )
            .into(),
            live_grant: "SELECT id FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND server = $3 AND tool = $4 \
                         AND recipients = $5 AND tool_digest = $6 AND revoked_at IS NULL"
                .into(),
            new_grant: format!(
                "INSERT INTO approval_grant (id, tenant, user_id, server, tool, recipients, tool_digest, \
                 action_id, created_by, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, {now}) ON CONFLICT DO NOTHING"
            )
            .into(),
            wake: format!(
                "UPDATE agent_run SET status = 'running', \
                 lease_until = CASE WHEN parent_run_id IS NULL THEN {now} ELSE NULL END \
                 WHERE root_id = $1 AND status = 'awaiting_confirmation'"
            )
            .into(),
            expire: format!(
                "UPDATE agent_action SET status = 'expired', completed_at = {now}, \
                 reason = CASE WHEN resolution IS NULL THEN 'its approval expired' ELSE reason END \
                 WHERE root_id = $1 AND {} AND expires_at <= {now} \
                 RETURNING id, run_id, tool, approval_id, resolution",
                action_may_become(Expired)
            )
            .into(),
            close: format!(
                "UPDATE agent_action SET status = 'expired', completed_at = {now}, \
                 reason = CASE WHEN resolution IS NULL THEN 'its run ended first' ELSE reason END WHERE run_id IN (WITH RECURSIVE below (id) AS (SELECT id FROM agent_run WHERE id = $1 UNION ALL \
                 SELECT run.id FROM agent_run run JOIN below ON run.parent_run_id = below.id) SELECT id FROM below) \
                 AND {} RETURNING id, run_id, tool, approval_id, resolution",
                action_may_become(Expired)
            )
            .into(),
            mark_in_doubt: format!(
                "UPDATE agent_action SET status = CASE WHEN side_effect THEN 'in_doubt' ELSE 'failed' END, \
                 completed_at = {now}, error_code = CASE WHEN side_effect THEN 'in_doubt' ELSE 'cancelled' END, \
                 error_message = 'sent, and its outcome was not recorded' WHERE root_id = $1 AND {} \
                 RETURNING id, run_id, tool, side_effect",
                action_may_become(InDoubt)
            )
            .into(),
            in_doubt: "SELECT action.status, action.settled_by, root.status, root.in_doubt, \
                       root.session_id, CASE root.status WHEN 'awaiting_confirmation' THEN root.waits_for END FROM agent_action action JOIN agent_run root ON root.id = action.root_id WHERE action.id = $1"
                .into(),
            is_settled: "SELECT id FROM agent_action WHERE id = $1 AND settled_by IS NOT NULL".into(),
            settled_of: "SELECT id FROM agent_action WHERE root_id = $1 AND settled_by IS NOT NULL \
                         AND EXISTS (SELECT 1 FROM agent_run root WHERE root.id = $1 AND root.session_id IS NOT NULL)"
                .into(),
            settle: format!(
                "UPDATE agent_action SET status = $2, error_code = $3, error_message = $4, settled_by = $5, \
                 settled_at = {now} WHERE id = $1 AND {} AND (status = 'in_doubt' OR settled_by IS NOT NULL) \
                 RETURNING run_id, tool",
                any("$2", &[Completed, Failed], ActionStatus::as_str, action_may_be_settled_as)
            )
            .into(),
            in_doubt_of: "SELECT id, in_doubt FROM agent_run WHERE root_id = $1 AND in_doubt IS NOT NULL ORDER BY id".into(),
            settle_run: "UPDATE agent_run SET in_doubt = $2, error_message = CASE WHEN stop_reason = 'in_doubt' \
                         AND CAST($2 AS TEXT) IS NULL THEN 'the outcome of a call was unknown; a user has settled it since' \
                         ELSE error_message END WHERE id = $1"
                .into(),
            settle_record: "UPDATE tool_invocation_log SET status = $2, error_code = $3, error_message = $4 \
                            WHERE decision_id = $5 AND id = $1 \
                            AND (status = 'in_doubt' OR status = 'completed' OR status = 'failed')"
                .into(),
            revoked: "SELECT id FROM approval_grant WHERE id = $1 AND tenant = $2 \
                      AND (CAST($3 AS TEXT) IS NULL OR user_id = $3) AND revoked_by = $4"
                .into(),
            revoke: format!(
                "UPDATE approval_grant SET revoked_by = $4, revoked_at = {now} WHERE id = $1 AND tenant = $2 \
                 AND (CAST($3 AS TEXT) IS NULL OR user_id = $3) AND revoked_at IS NULL \
                 RETURNING user_id, server, tool, recipients"
            )
            .into(),
        }
    }
}
