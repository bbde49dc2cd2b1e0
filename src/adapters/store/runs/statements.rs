//! Every statement that writes runs and definitions.

use std::sync::LazyLock;

use super::super::db::{Dialect, Sql};
use super::super::insert::Insert;
use super::super::recovered;
use super::super::transition::{any, run_may_become};

use crate::domain::agent_run::RunStatus::{self, Cancelled, Completed, Failed, Paused};
use crate::domain::agent_run::StopReason;
use crate::domain::templates::Text;
use crate::ports::runs::{MOST_CLAIMS, MOST_TAKES};

/// Outermost runs that are deleted in one transaction: few, since their journals may be long.
const PRUNED_AT_ONCE: usize = 8;
/// Number of ids in one statement. If there are fewer, the last one is repeated.
pub(super) const MANY: usize = 32;

/// The statements, built once. Each comment lists the parameters, and after `→` the returned columns.
pub(in super::super) struct RunStatements {
    /// [`MANY`] runs: locks them in order, one after another; only on PostgreSQL, which has several writers.
    pub(super) lock: Option<Sql>,
    /// run → its outermost run.
    pub(super) root_of: Sql,
    /// tenant, project: keeps other writers from adding a definition to it until the transaction ends; only on
    /// PostgreSQL.
    pub(super) lock_project: Option<Sql>,
    /// root, fence, holder, run → run, last position in the event log, takes of the root; a row if the lease is held and
    /// the run is running.
    pub(super) holds: Sql,
    /// run, number of an entry: a row if the run, or one above it, was cancelled, and the entry does not exist yet.
    pub(super) cancelled_before: Sql,
    /// calling run, action → run.
    pub(super) called: Sql,
    /// hash, text.
    pub(super) snapshot: Sql,
    /// hash: keeps it from being deleted until this transaction ends; only on PostgreSQL.
    pub(super) hold_snapshot: Option<Sql>,
    pub(super) create: Insert,
    /// run → status (paused if it can be resumed), attempt, request that reopened it, fence, attempts, started at,
    /// completed at, stop reason, error message, summary, steps.
    pub(super) reopenable: Sql,
    /// run, status, holder, lease in microseconds, request, attempts, settings, fences of this reopening.
    pub(super) reopen: Sql,
    /// run, time, entry: adds the entry to its journal, after the position of the run's end.
    pub(super) reopen_entry: Sql,
    /// run, holder: ends a run whose creation was not acknowledged.
    pub(super) abandon: Sql,
    /// run, holder, lease id, lease in microseconds → fence. On PostgreSQL it skips a locked row and does not wait for
    /// it.
    pub(super) take: Sql,
    /// run, lease id → fence.
    pub(super) taken: Sql,
    pub(super) entry: Insert,
    /// run, steps, tokens: updates its usage so far.
    pub(super) update_usage: Sql,
    /// root: it has progressed, so no process counts as lost.
    pub(in super::super) progress: Sql,
    /// run, status, completed at, summary, output, error message, stop reason, recovered from, in doubt, steps, tokens.
    pub(super) finish: Sql,
    /// root, fence, holder, run, status, completed at: a row if it was finished with these values.
    pub(super) finished: Sql,
    /// root: locks its child runs that have not ended, in order; only on PostgreSQL.
    pub(super) lock_called: Option<Sql>,
    /// root, completed at: ends its child runs that have not ended.
    pub(super) end_called: Sql,
    /// root: closes the open decisions of its child runs.
    pub(super) close_called: Sql,
    /// root: the started calls of its runs → call, decision, tool, whether it has a side effect.
    pub(super) mark_started_in_doubt: Sql,
    /// root → run, call, tool and arguments of these calls.
    pub(super) started: Sql,
    /// run, in-doubt calls.
    pub(super) in_doubt: Sql,
    /// lease in microseconds, twice, holder, [`MANY`] runs → run, fence of the runs that the holder holds, or held when
    /// they ended.
    pub(super) renew: Sql,
    /// [`MANY`] roots → runs that must be cancelled.
    pub(super) cancelled: Sql,
    /// run, fence, holder.
    pub(super) release: Sql,
    /// run, holder → completed at. Fails a run that was taken too often without being returned, unless this holder
    /// holds it.
    pub(super) give_up: Sql,
    /// run: closes the decision of a run that was given up.
    pub(super) close_given_up: Sql,
    /// root → tool and status of its side effects that completed or are in doubt.
    pub(super) effects: Sql,
    /// run: cancels it if it is queued and has never begun.
    pub(super) cancel_queued: Sql,
    /// run: closes the decision of a run that was cancelled while queued.
    pub(super) close_cancelled: Sql,
    /// run: requests the cancellation of a run that has not ended.
    pub(super) cancel: Sql,
    /// run: its outermost run and all runs below become ready for a worker, if they await approval.
    pub(super) wake_cancelled: Sql,
    /// age in microseconds → at most [`PRUNED_AT_ONCE`] roots. A run of a planning session is kept while the session
    /// is kept.
    pub(super) prunable: Sql,
    /// [`MANY`] roots → the snapshots of their runs.
    pub(super) prunable_snapshots: Sql,
    /// [`MANY`] roots: deletes the journals of their runs.
    pub(super) prune_entries: Sql,
    /// [`MANY`] roots: deletes the actions of their runs.
    pub(super) prune_actions: Sql,
    /// [`MANY`] roots: deletes the lines of their runs in threads.
    pub(super) prune_messages: Sql,
    /// [`MANY`] roots: deletes their runs.
    pub(super) prune: Sql,
    /// age in microseconds → at most [`MANY`] threads that have been inactive for this long and have no runs.
    pub(super) prunable_threads: Sql,
    /// thread: deletes it.
    pub(super) prune_thread: Sql,
    /// hash: locks a snapshot; no row if a run is being created with it; only on PostgreSQL.
    pub(super) lock_snapshot: Option<Sql>,
    /// hash: deletes a snapshot that no run uses.
    pub(super) prune_snapshot: Sql,
    /// tenant, project, agent, id → version, hash, id of the version with that id, or else of the current one.
    pub(super) defined: Sql,
    /// tenant, project, agent, version, id, hash, definition, author, created at.
    pub(super) define: Sql,
}

const CREATE_HEAD: &str = "INSERT INTO agent_run (id, root_id, parent_run_id, parent_action_id, tenant, user_id, \
     project_id, agent_id, version, definition_hash, snapshot_hash, input, settings, status, holder, lease_until, fence, \
     takes, created_at, started_at, thread_id, session_id)";
// The row exists if an earlier commit of the same op was not acknowledged.
const CREATE_TAIL: &str = "ON CONFLICT (id) DO NOTHING";

const ENTRY_HEAD: &str =
    "INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body, root_id, position)";
const ENTRY_TAIL: &str = "ON CONFLICT (run_id, number) DO NOTHING";

// After a release the last holder keeps its rights until another process takes the run. So pending writes, above all
// the run's end, are not lost.
const HELD: &str = "SELECT run.id, \
     (SELECT COALESCE(MAX(position), 0) FROM agent_run_entry WHERE root_id = $1) AS last, root.takes FROM agent_run root JOIN agent_run run ON run.root_id = root.id WHERE root.id = $1 \
     AND root.fence = $2 AND (root.holder = $3 OR root.holder IS NULL) AND run.id = $4";

/// run: a row if it, or a run above it, was cancelled.
pub(super) const CANCELLED: &str = "WITH RECURSIVE caller(id, parent, cancelled) AS (\
     SELECT id, parent_run_id, cancel_requested FROM agent_run WHERE id = $1 UNION ALL \
     SELECT run.id, run.parent_run_id, run.cancel_requested FROM agent_run run JOIN caller ON run.id = caller.parent) \
     SELECT 1 FROM caller WHERE cancelled";

/// The message of a run that was given up.
pub(super) static GIVEN_UP: LazyLock<String> =
    LazyLock::new(|| Text::ProcessLost.with(&[("many", &MOST_TAKES.to_string())]));

/// Condition on a run: it was taken too often without being returned, and its lease has expired. `holder` is excluded:
/// that process is alive and still writes what it could not write.
pub(super) fn taken_too_often(dialect: Dialect, holder: &str) -> String {
    let now = dialect.now();
    format!(
        "status = 'running' AND lease_until IS NOT NULL AND lease_until <= {now} AND takes >= {MOST_CLAIMS} AND holder <> {holder}"
    )
}

/// Condition on a run: it is paused, or failed since its processes were lost.
const RESUMABLE: &str = "(status = 'paused' OR (status = 'failed' AND stop_reason = 'process_lost'))";

const IN_PROGRESS: &str = "status IN ('queued', 'running', 'awaiting_confirmation')";

/// Condition on a claim: the run that it created has not ended.
pub(in super::super) const RUN_ACTIVE: &str = "EXISTS (SELECT 1 FROM agent_run \
     WHERE agent_run.id = idempotency_key.decision_id AND agent_run.completed_at IS NULL)";

/// Condition on a queued run: no other run of its thread is active, or queued before it. Runs of a thread run one at a
/// time, in order.
pub(super) const FIRST_OF_THREAD: &str = "(thread_id IS NULL OR NOT EXISTS (SELECT 1 FROM agent_run other \
     WHERE other.thread_id = agent_run.thread_id AND other.id <> agent_run.id \
     AND (other.status = 'queued' OR other.status = 'running' OR other.status = 'awaiting_confirmation') AND (other.status = 'running' OR other.status = 'awaiting_confirmation' OR (other.status = 'queued' \
     AND (other.created_at, other.id) < (agent_run.created_at, agent_run.id)))))";

impl RunStatements {
    /// Longer than a screen: a table, with one row for each statement.
    pub(in super::super) fn new(dialect: Dialect) -> Self {
        let now = dialect.now();
        let many = vec!["?"; MANY].join(", ");
        let text = |text: String| -> Sql { dialect.placeholders(&text).into() };
        let on_postgres = |text: String| (dialect == Dialect::Postgres).then(|| dialect.placeholders(&text).into());
        Self {
            lock: on_postgres(format!(
                "SELECT id FROM agent_run WHERE id IN ({many}) ORDER BY id FOR UPDATE"
            )),
            root_of: "SELECT root_id FROM agent_run WHERE id = $1".into(),
            // A child run may still be marked as awaiting approval when only the outermost run was taken.
            holds: format!(
                "{HELD} AND root.status = 'running' AND (run.status = 'running' \
                 OR (run.status = 'awaiting_confirmation' AND run.id <> root.id))"
            )
            .into(),
            cancelled_before: format!(
                "{CANCELLED} AND NOT EXISTS (SELECT 1 FROM agent_run_entry WHERE run_id = $1 AND number = $2) LIMIT 1"
            )
            .into(),
            called: "SELECT id FROM agent_run WHERE parent_run_id = $1 AND parent_action_id = $2".into(),
            snapshot: "INSERT INTO agent_snapshot (hash, text) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING".into(),
            hold_snapshot: on_postgres("SELECT hash FROM agent_snapshot WHERE hash = ? FOR KEY SHARE".into()),
            create: Insert::new(
                dialect,
                CREATE_HEAD,
                &format!("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now} + CAST(? AS BIGINT), ?, ?, ?, ?, ?, ?)"),
                CREATE_TAIL,
            ),
            reopenable: format!(
                "SELECT CASE WHEN {RESUMABLE} THEN 'paused' ELSE status END, attempt, reopened_by, fence, attempts, \
                 started_at, completed_at, stop_reason, error_message, summary, steps, tenant, user_id \
                 FROM agent_run WHERE id = $1"
            )
            .into(),
            reopen: format!(
                "UPDATE agent_run SET status = $2, holder = $3, lease_id = NULL, lease_until = {now} + $4, \
                 reopened_by = $5, attempts = $6, settings = $7, attempt = attempt + 1, takes = $8, worked_us = 0, \
                 reopened_fence = fence, fence = fence + $8, cancel_requested = FALSE, completed_at = NULL, \
                 started_at = CASE WHEN $2 = 'queued' THEN NULL ELSE {now} END, summary = NULL, output = NULL, \
                 error_message = NULL, stop_reason = NULL, recovered_from = NULL, in_doubt = NULL \
                 WHERE id = $1 AND {RESUMABLE}"
            )
            .into(),
            reopen_entry: "INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body, root_id, position) \
                           SELECT run.id, \
                           (SELECT COALESCE(MAX(number), 0) + 1 FROM agent_run_entry WHERE run_id = run.id), \
                           CAST($2 AS BIGINT), 0, $3, run.root_id, \
                           (SELECT COALESCE(MAX(position), 0) + 2 FROM agent_run_entry WHERE root_id = run.root_id) \
                           FROM agent_run run WHERE run.id = $1"
                .into(),
            abandon: format!(
                "UPDATE agent_run SET status = 'failed', completed_at = {now}, lease_until = NULL, \
                 error_message = 'not begun: its record was not acknowledged in time' \
                 WHERE id = $1 AND lease_id IS NULL \
                 AND (status = 'queued' OR (status = 'running' AND fence = 1 AND holder = $2))"
            )
            .into(),
            take: {
                let free = format!(
                    "id = $1 AND parent_run_id IS NULL AND (status = 'queued' OR (status = 'running' AND lease_until <= {now})) \
                     AND (status <> 'queued' OR {FIRST_OF_THREAD}) AND (takes < {MOST_CLAIMS} OR holder = $2)"
                );
                let free = match dialect {
                    Dialect::Sqlite => free,
                    Dialect::Postgres => {
                        format!("id = (SELECT id FROM agent_run WHERE {free} FOR UPDATE SKIP LOCKED)")
                    }
                };
                format!(
                    "UPDATE agent_run SET status = 'running', holder = $2, lease_id = $3, lease_until = {now} + $4, \
                     fence = fence + 1, takes = CASE WHEN holder = $2 THEN takes ELSE takes + 1 END, \
                     started_at = COALESCE(started_at, {now}) WHERE {free} RETURNING fence"
                )
                .into()
            },
            taken: "SELECT fence FROM agent_run WHERE id = $1 AND lease_id = $2 AND status = 'running'".into(),
            entry: Insert::new(dialect, ENTRY_HEAD, "(?, ?, ?, ?, ?, ?, ?)", ENTRY_TAIL),
            update_usage: "UPDATE agent_run SET steps = $2, input_tokens = $3, output_tokens = $4, thought_tokens = $5, \
                    cached_tokens = $6 WHERE id = $1"
                .into(),
            progress: "UPDATE agent_run SET takes = 0 WHERE id = $1".into(),
            finish: format!(
                "UPDATE agent_run SET status = $2, completed_at = $3, summary = $4, output = $5, error_message = $6, \
                 stop_reason = $7, recovered_from = $8, in_doubt = $9, steps = $10, input_tokens = $11, \
                 output_tokens = $12, thought_tokens = $13, cached_tokens = $14, lease_until = NULL \
                 WHERE id = $1 AND started_at IS NOT NULL AND {}",
                any("$2", &[Completed, Failed, Cancelled, Paused], RunStatus::as_str, run_may_become)
            )
            .into(),
            finished: format!("{HELD} AND run.status = $5 AND run.completed_at = $6").into(),
            lock_called: on_postgres(format!(
                "SELECT id FROM agent_run WHERE root_id = ? AND parent_run_id IS NOT NULL AND {IN_PROGRESS} ORDER BY id \
                 FOR UPDATE"
            )),
            end_called: format!(
                "UPDATE agent_run SET status = 'failed', completed_at = $2, \
                 error_message = 'the run that called it ended first' WHERE root_id = $1 AND id <> $1 AND {IN_PROGRESS}"
            )
            .into(),
            close_called: format!(
                "{} WHERE status = 'open' AND id IN (SELECT id FROM agent_run WHERE root_id = $1 AND id <> $1)",
                recovered::close("the run that called it ended first")
            )
            .into(),
            mark_started_in_doubt: "UPDATE tool_invocation_log SET status = 'in_doubt', error_code = 'in_doubt', \
                           error_message = 'sent, and its outcome was not recorded' WHERE status = 'started' \
                           AND decision_id IN (SELECT id FROM agent_run WHERE root_id = $1) \
                           RETURNING id, decision_id, tool, side_effect"
                .into(),
            started: "SELECT decision_id, id, tool, arguments FROM tool_invocation_log WHERE status = 'started' \
                      AND decision_id IN (SELECT id FROM agent_run WHERE root_id = $1) \
                      ORDER BY decision_id, sequence"
                .into(),
            in_doubt: "UPDATE agent_run SET in_doubt = $2 WHERE id = $1".into(),
            // A clock that was set back or a machine that slept adds no more than one lease.
            renew: text(format!(
                "UPDATE agent_run SET worked_us = worked_us + CASE WHEN status <> 'running' OR lease_until IS NULL \
                 OR lease_until > {now} + CAST(? AS BIGINT) THEN 0 WHEN lease_until < {now} THEN CAST(? AS BIGINT) \
                 ELSE {now} + CAST(? AS BIGINT) - lease_until END, \
                 lease_until = CASE WHEN status = 'running' THEN {now} + CAST(? AS BIGINT) END \
                 WHERE holder = ? AND id IN ({many}) RETURNING id, fence"
            )),
            cancelled: text(format!(
                "SELECT run.id FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
                 WHERE run.root_id IN ({many}) AND run.status = 'running' \
                 AND (run.cancel_requested OR root.cancel_requested) ORDER BY run.id"
            )),
            release: format!(
                "UPDATE agent_run SET lease_until = {now}, holder = NULL, \
                 takes = CASE WHEN takes > {MOST_TAKES} THEN takes ELSE 0 END WHERE id = $1 AND fence = $2 AND holder = $3 \
                 AND status = 'running'"
            )
            .into(),
            give_up: format!(
                "UPDATE agent_run SET status = 'failed', completed_at = {now}, lease_until = NULL, \
                 stop_reason = '{}', error_message = '{}' WHERE id = $1 AND {} RETURNING completed_at",
                StopReason::ProcessLost.as_str(),
                GIVEN_UP.replace('\'', "''"),
                taken_too_often(dialect, "$2")
            )
            .into(),
            close_given_up: format!("{} WHERE id = $1 AND status = 'open'", recovered::close(&GIVEN_UP.replace('\'', "''"))).into(),
            effects: "SELECT tool, status FROM agent_action WHERE root_id = $1 AND side_effect \
                      AND (status = 'completed' OR status = 'in_doubt') ORDER BY created_at, id"
                .into(),
            cancel_queued: format!(
                "UPDATE agent_run SET status = 'cancelled', cancel_requested = TRUE, completed_at = {now}, \
                 lease_until = NULL, error_message = 'cancelled before it began' WHERE id = $1 AND status = 'queued' AND attempt = 0"
            )
            .into(),
            close_cancelled: format!(
                "UPDATE decision_log SET status = 'closed', decision_type = 'REFUSE', \
                 outcome_category = 'REFUSAL:CANCELLED', intent = 'none', error_detail = 'cancelled before it began', \
                 duration_us = CASE WHEN created_at < {now} THEN {now} - created_at ELSE 0 END \
                 WHERE id = $1 AND status = 'open'"
            )
            .into(),
            cancel: format!("UPDATE agent_run SET cancel_requested = TRUE WHERE id = $1 AND {IN_PROGRESS}").into(),
            wake_cancelled: format!(
                "UPDATE agent_run SET status = 'running', \
                 lease_until = CASE WHEN parent_run_id IS NULL THEN {now} ELSE NULL END \
                 WHERE root_id = (SELECT r.root_id FROM agent_run r WHERE r.id = $1) AND status = 'awaiting_confirmation'"
            )
            .into(),
            prunable: {
                // Skips a run that is currently being resumed, and a run with an action in doubt until it is settled.
                let lock = match dialect {
                    Dialect::Sqlite => "",
                    Dialect::Postgres => "FOR UPDATE OF run SKIP LOCKED",
                };
                format!(
                    "SELECT run.id FROM agent_run run WHERE run.parent_run_id IS NULL AND run.completed_at IS NOT NULL \
                     AND run.completed_at <= {now} - $1 \
                     AND NOT EXISTS (SELECT 1 FROM agent_action action WHERE action.root_id = run.id \
                     AND action.status = 'in_doubt') \
                     AND NOT EXISTS (SELECT 1 FROM planning_session session WHERE session.id = run.session_id) \
                     ORDER BY run.completed_at LIMIT {PRUNED_AT_ONCE} {lock}"
                )
                .into()
            },
            prunable_snapshots: text(format!(
                "SELECT DISTINCT snapshot_hash FROM agent_run WHERE root_id IN ({many}) ORDER BY snapshot_hash"
            )),
            prune_entries: text(format!(
                "DELETE FROM agent_run_entry WHERE run_id IN (SELECT id FROM agent_run WHERE root_id IN ({many}))"
            )),
            prune_actions: text(format!("DELETE FROM agent_action WHERE root_id IN ({many})")),
            prune_messages: text(format!(
                "DELETE FROM thread_message WHERE run_id IN (SELECT id FROM agent_run WHERE root_id IN ({many}))"
            )),
            prune: text(format!("DELETE FROM agent_run WHERE root_id IN ({many})")),
            prunable_threads: {
                // Skips a thread that is currently being written to.
                let lock = match dialect {
                    Dialect::Sqlite => "",
                    Dialect::Postgres => "FOR UPDATE SKIP LOCKED",
                };
                format!(
                    "SELECT id FROM thread WHERE updated_at <= {now} - $1 \
                     AND NOT EXISTS (SELECT 1 FROM agent_run WHERE thread_id = thread.id) \
                     ORDER BY updated_at LIMIT {MANY} {lock}"
                )
                .into()
            },
            prune_thread: "DELETE FROM thread WHERE id = $1".into(),
            lock_snapshot: on_postgres("SELECT hash FROM agent_snapshot WHERE hash = ? FOR UPDATE SKIP LOCKED".into()),
            prune_snapshot: "DELETE FROM agent_snapshot WHERE hash = $1 \
                             AND NOT EXISTS (SELECT 1 FROM agent_run WHERE snapshot_hash = $1)"
                .into(),
            lock_project: on_postgres("SELECT pg_advisory_xact_lock(hashtextextended(? || '/' || ?, 0))".into()),
            defined: "SELECT version, hash, id FROM agent_definition WHERE tenant = $1 AND project_id = $2 \
                      AND agent_id = $3 ORDER BY CASE WHEN id = $4 THEN 0 ELSE 1 END, version DESC LIMIT 1"
                .into(),
            define:
                "INSERT INTO agent_definition (tenant, project_id, agent_id, version, id, hash, definition, author, \
                     created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
                     ON CONFLICT (tenant, project_id, agent_id, version) DO NOTHING"
                    .into(),
        }
    }
}
