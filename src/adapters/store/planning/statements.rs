//! Every statement that writes planning sessions.

use super::super::db::{Dialect, Sql};
use super::super::transition::{any, session_may_become};
use crate::domain::planning_session::SessionStatus::{
    self, AwaitingConfirmation, Cancelled, Completed, DeadlineExceeded, Executing, Failed, Planning,
};

/// Sessions that are deleted in one transaction.
pub(super) const PRUNED_AT_ONCE: usize = 32;

/// The statements, built once. Each comment lists the parameters, and after `→` the returned columns.
pub(in super::super) struct PlanningStatements {
    /// Lets the runs that begin in sessions wait for each other until the transaction ends, so that none of them counts
    /// what another one adds too late; only on PostgreSQL.
    pub(in super::super) lock_starts: Option<Sql>,
    /// session: locks it; only on PostgreSQL.
    pub(in super::super) lock: Option<Sql>,
    /// session → its run.
    pub(in super::super) run_of: Sql,
    /// session, tenant, user, prompt, address of the repository, deadline, run, time.
    pub(super) start: Sql,
    /// tenant, user → sessions that have not ended: whether they wait for confirmation, whether they are of the tenant and
    /// of the user, how many.
    pub(super) open: Sql,
    /// session, tenant, user, version, run, time → plan: a refinement begins.
    pub(super) refine: Sql,
    /// session, tenant, user, version, run, time → plan: the work on the version begins.
    pub(super) execute: Sql,
    /// run, session: a row if the run was created for it.
    pub(super) is_there: Sql,
    /// session, tenant, user → status, version, deadline.
    pub(super) place: Sql,
    /// session → status, version, deadline, completed at.
    pub(super) now: Sql,
    /// session, run, plan, last task, notes, time → version: the run has made a plan.
    pub(super) made: Sql,
    /// session, version, plan, last task, notes, time → version: a person has edited the plan.
    pub(super) edited: Sql,
    /// session, version, time, name, kind, why, changes, hash, run, plan, last task.
    pub(super) add_version: Sql,
    /// session, version, time, name, hash: a row if this edit made the version.
    pub(super) is_edited: Sql,
    /// session, run, whether it has a plan, code, detail, time: the run has made no plan, and the earlier one remains.
    pub(super) stand: Sql,
    /// session, run, whether it has a plan, code, detail, time, status: the run has made no plan, which ends the
    /// session.
    pub(super) end: Sql,
    /// session, run, plan, last task, 1 for a new version or else 0, cleanup, time → version, time: the work has come
    /// this far.
    pub(super) worked: Sql,
    /// session, run, hash, time or NULL: a row if the run's work made the current version.
    pub(super) is_changed: Sql,
    /// session, run, status, code, detail, time: the work ends, and the session with it.
    pub(super) finish: Sql,
    /// session, run, time: the work continues, since the run that failed is resumed.
    pub(super) resume: Sql,
    /// session, code, detail, time → run: cancels it.
    pub(super) cancel: Sql,
    /// session, time, another time → run, code: ends it if its deadline has passed, or if it has waited for a confirmation
    /// since the other.
    pub(super) expire: Sql,
    /// session → its run, with the run's status and error message, if the run has ended or was deleted; the session's
    /// status, plan and last task; the number of runs that this one called.
    pub(super) left_behind: Sql,
    /// session, time → its run, if that waits for a settlement and the deadline has passed.
    pub(super) waits_past: Sql,
    /// age in microseconds → at most [`PRUNED_AT_ONCE`] sessions that ended this long ago.
    pub(super) prunable: Sql,
    /// session: deletes the versions of its plan.
    pub(super) prune_versions: Sql,
    /// session: deletes it.
    pub(super) prune: Sql,
}

impl PlanningStatements {
    /// Longer than a screen: a table, with one row for each statement.
    pub(in super::super) fn new(dialect: Dialect) -> Self {
        let now = dialect.now();
        // The time of a fact about the work, if its commit has one.
        let at = format!("COALESCE(CAST($7 AS BIGINT), {now})");
        let on_postgres = |text: &str| (dialect == Dialect::Postgres).then(|| text.into());
        let (lock, skip) = match dialect {
            Dialect::Sqlite => ("", ""),
            Dialect::Postgres => ("FOR UPDATE", "FOR UPDATE SKIP LOCKED"),
        };
        // What the author of a new version leaves behind: nothing of an earlier end or failure.
        let new_version = "status = 'AWAITING_CONFIRMATION', version = version + 1, plan = $3, last_task = $4, notes = $5, \
                           status_code = NULL, status_detail = NULL, refinement_code = NULL, refinement_detail = NULL";
        Self {
            lock_starts: on_postgres("SELECT pg_advisory_xact_lock(hashtextextended('planning_session', 0))"),
            lock: on_postgres("SELECT id FROM planning_session WHERE id = $1 FOR UPDATE"),
            run_of: "SELECT run_id FROM planning_session WHERE id = $1".into(),
            start: "INSERT INTO planning_session (id, tenant, user_id, status, prompt, repo_url, deadline, run_id, \
                    created_at, updated_at) VALUES ($1, $2, $3, 'PLANNING', $4, $5, $6, $7, $8, $8) \
                    ON CONFLICT (id) DO NOTHING"
                .into(),
            open: "SELECT status = 'AWAITING_CONFIRMATION', tenant = $1, tenant = $1 AND user_id = $2, COUNT(*) \
                   FROM planning_session WHERE completed_at IS NULL GROUP BY 1, 2, 3"
                .into(),
            refine: format!(
                "UPDATE planning_session SET status = 'PLANNING', run_id = $5, refinement_code = NULL, \
                 refinement_detail = NULL, updated_at = $6 WHERE id = $1 AND tenant = $2 AND user_id = $3 \
                 AND version = $4 AND deadline > $6 AND {} RETURNING plan",
                session_may_become(Planning)
            )
            .into(),
            execute: format!(
                "UPDATE planning_session SET status = 'EXECUTING', run_id = $5, started_at = $6, updated_at = $6 \
                 WHERE id = $1 AND tenant = $2 AND user_id = $3 AND version = $4 AND deadline > $6 AND {} RETURNING plan",
                session_may_become(Executing)
            )
            .into(),
            is_there: "SELECT id FROM agent_run WHERE id = $1 AND session_id = $2".into(),
            place: format!(
                "SELECT status, version, deadline FROM planning_session WHERE id = $1 AND tenant = $2 AND user_id = $3 {lock}"
            )
            .into(),
            now: format!(
                "SELECT status, version, deadline, completed_at FROM planning_session WHERE id = $1 {lock}"
            )
            .into(),
            made: format!(
                "UPDATE planning_session SET {new_version}, updated_at = COALESCE(CAST($6 AS BIGINT), {now}) \
                 WHERE id = $1 AND run_id = $2 AND {} RETURNING version, updated_at",
                session_may_become(AwaitingConfirmation)
            )
            .into(),
            // It waits for confirmation before and after.
            edited: format!(
                "UPDATE planning_session SET {new_version}, updated_at = $6 \
                 WHERE id = $1 AND version = $2 AND deadline > $6 AND status = 'AWAITING_CONFIRMATION' \
                 RETURNING version, updated_at"
            )
            .into(),
            add_version: "INSERT INTO planning_change (session_id, version, at, by_name, kind, why, changes, hash, run_id, \
                          plan, last_task) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
                .into(),
            is_edited: "SELECT version FROM planning_change WHERE session_id = $1 AND version = $2 AND at = $3 \
                        AND by_name = $4 AND hash = $5 AND kind = 'edited'"
                .into(),
            stand: format!(
                "UPDATE planning_session SET status = 'AWAITING_CONFIRMATION', refinement_code = $4, \
                 refinement_detail = $5, updated_at = COALESCE(CAST($6 AS BIGINT), {now}) \
                 WHERE id = $1 AND run_id = $2 AND (version > 0) = $3 AND {}",
                session_may_become(AwaitingConfirmation)
            )
            .into(),
            end: format!(
                "UPDATE planning_session SET status = $7, status_code = $4, status_detail = $5, \
                 updated_at = COALESCE(CAST($6 AS BIGINT), {now}), completed_at = COALESCE(CAST($6 AS BIGINT), {now}) \
                 WHERE id = $1 AND run_id = $2 AND (version > 0) = $3 AND status = 'PLANNING'"
            )
            .into(),
            // An end that came meanwhile remains, and says since when.
            worked: format!(
                "UPDATE planning_session SET plan = $3, last_task = $4, version = version + $5, \
                 cleanup = COALESCE($6, cleanup), updated_at = CASE WHEN updated_at > {at} THEN updated_at ELSE {at} END \
                 WHERE id = $1 AND run_id = $2 AND started_at IS NOT NULL RETURNING version, {at}"
            )
            .into(),
            is_changed: "SELECT change.version FROM planning_session session JOIN planning_change change \
                         ON change.session_id = session.id AND change.version = session.version \
                         WHERE session.id = $1 AND change.run_id = $2 AND change.hash = $3 AND change.kind = 'changed' \
                         AND (CAST($4 AS BIGINT) IS NULL OR change.at = $4)"
                .into(),
            finish: format!(
                "UPDATE planning_session SET status = $3, status_code = $4, status_detail = $5, \
                 updated_at = COALESCE(CAST($6 AS BIGINT), {now}), completed_at = COALESCE(CAST($6 AS BIGINT), {now}) \
                 WHERE id = $1 AND run_id = $2 AND status = 'EXECUTING' AND {}",
                any(
                    "$3",
                    &[Completed, Failed, DeadlineExceeded, Cancelled],
                    SessionStatus::as_str,
                    session_may_become
                )
            )
            .into(),
            resume: "UPDATE planning_session SET status = 'EXECUTING', status_code = NULL, status_detail = NULL, \
                     cleanup = NULL, completed_at = NULL, updated_at = $3 \
                     WHERE id = $1 AND run_id = $2 AND status = 'FAILED' AND started_at IS NOT NULL AND deadline > $3"
                .into(),
            cancel: format!(
                "UPDATE planning_session SET status = 'CANCELLED', status_code = $2, status_detail = $3, updated_at = $4, \
                 completed_at = $4 WHERE id = $1 AND {} RETURNING run_id",
                session_may_become(Cancelled)
            )
            .into(),
            expire: format!(
                "UPDATE planning_session SET status = 'DEADLINE_EXCEEDED', updated_at = $2, completed_at = $2, \
                 status_code = CASE WHEN deadline <= $2 THEN 'deadline' ELSE 'unconfirmed' END, \
                 status_detail = CASE WHEN deadline <= $2 \
                 THEN 'the deadline passed before the session had reached its goal' \
                 ELSE 'no person confirmed the plan in time (planning.confirm_hours)' END \
                 WHERE id = $1 AND {} \
                 AND (deadline <= $2 OR (status = 'AWAITING_CONFIRMATION' AND updated_at <= $3)) \
                 RETURNING run_id, status_code",
                session_may_become(DeadlineExceeded)
            )
            .into(),
            left_behind: "SELECT session.run_id, run.status, run.error_message, session.status, session.plan, \
                          session.last_task, (SELECT COUNT(*) FROM agent_run task WHERE task.root_id = session.run_id \
                          AND task.id <> session.run_id) \
                          FROM planning_session session LEFT JOIN agent_run run ON run.id = session.run_id \
                          WHERE session.id = $1 AND (session.status = 'PLANNING' OR session.status = 'EXECUTING') \
                          AND (run.id IS NULL OR run.completed_at IS NOT NULL)"
                .into(),
            waits_past: "SELECT run.id FROM planning_session session JOIN agent_run run ON run.id = session.run_id \
                         WHERE session.id = $1 AND session.deadline <= $2 AND run.status = 'awaiting_confirmation' \
                         AND run.waits_for IS NOT NULL"
                .into(),
            prunable: format!(
                "SELECT id FROM planning_session WHERE completed_at IS NOT NULL AND completed_at <= {now} - $1 \
                 ORDER BY completed_at LIMIT {PRUNED_AT_ONCE} {skip}"
            )
            .into(),
            prune_versions: "DELETE FROM planning_change WHERE session_id = $1".into(),
            prune: "DELETE FROM planning_session WHERE id = $1".into(),
        }
    }
}
