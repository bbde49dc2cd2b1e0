//! Every statement that writes runs and definitions.

use std::sync::LazyLock;

use super::super::db::{Dialect, Sql};
use super::super::insert::Insert;
use super::super::statements::recovered;
use super::super::transition::{any, run_may_become};

use crate::domain::agent_run::RunStatus::{self, Cancelled, Completed, Failed, Paused};
use crate::domain::agent_run::StopReason;
use crate::domain::templates::Text;
use crate::ports::runs::MOST_TAKES;

/// Outermost runs that are dropped in one transaction: few, since their journals may be long.
const PRUNED_AT_ONCE: usize = 8;
/// Ids of a statement that takes many; fewer are filled up with the last.
pub(super) const MANY: usize = 32;

/// The texts, made once.
pub(in super::super) struct RunStatements {
    /// [`MANY`] runs, in order, locked one after another; on PostgreSQL, where there are several writers.
    pub(super) lock: Option<Sql>,
    /// run: its outermost run stands still, where rows are locked.
    pub(super) lock_root: Option<Sql>,
    /// tenant, project: until the transaction ends nobody else puts a definition into it; on PostgreSQL.
    pub(super) lock_project: Option<Sql>,
    /// root, fence, holder, run: a row when the lease is held and the run is running.
    pub(super) holds: Sql,
    /// run, the number of an entry that is not there yet: a row when somebody has cancelled the run, or one that called it.
    pub(super) cancelled_before: Sql,
    /// caller, call → run.
    pub(super) called: Sql,
    /// hash, text.
    pub(super) snapshot: Sql,
    /// hash: so that nobody prunes it before this transaction ends; on PostgreSQL.
    pub(super) hold_snapshot: Option<Sql>,
    pub(super) create: Insert,
    /// paused run, the new one.
    pub(super) resume: Sql,
    /// run → status, resumed by.
    pub(super) resumable: Sql,
    /// paused run, the new one: it was not made after all.
    pub(super) unresume: Sql,
    /// run: what it was to go on with may be gone on with again.
    pub(super) unresume_by: Sql,
    /// run, holder: nobody heard that it was made.
    pub(super) abandon: Sql,
    /// run, holder, lease id, lease in microseconds → fence. On PostgreSQL a row that is locked is not taken, nor waited for.
    pub(super) take: Sql,
    /// run, lease id → fence.
    pub(super) taken: Sql,
    pub(super) entry: Insert,
    /// run, steps, tokens: what it has used up by now.
    pub(super) spend: Sql,
    /// run, status, completed at, summary, output, error message, stop reason, recovered from, in doubt, steps, tokens.
    pub(super) finish: Sql,
    /// root, fence, holder, run, status, completed at: a row when it was finished so.
    pub(super) finished: Sql,
    /// root: the runs below it that are not over, in order, locked one after another; on PostgreSQL.
    pub(super) lock_called: Option<Sql>,
    /// root, completed at: the runs below it that are not over.
    pub(super) end_called: Sql,
    /// root: the open decisions of the runs below it.
    pub(super) close_called: Sql,
    /// root: the started calls of its runs → call, decision, tool, has it consequences?
    pub(super) doubt_started: Sql,
    /// root → run, call, tool and arguments of these.
    pub(super) started: Sql,
    /// run, calls in doubt.
    pub(super) doubt: Sql,
    /// lease in microseconds, holder, [`MANY`] runs → run, fence of those that are the holder's, or were when they ended.
    pub(super) renew: Sql,
    /// [`MANY`] roots → runs that are to be cancelled.
    pub(super) cancelled: Sql,
    /// run, fence, holder.
    pub(super) release: Sql,
    /// run, holder → completed at: it was taken too often without being returned, and not by this holder.
    pub(super) give_up: Sql,
    /// run: its decision, when it was given up.
    pub(super) close_given_up: Sql,
    /// root → tool and status of the effects of its actions, completed or in doubt.
    pub(super) effects: Sql,
    /// run that is queued.
    pub(super) cancel_queued: Sql,
    /// run: its decision, when it was cancelled before it began.
    pub(super) close_cancelled: Sql,
    /// run that somebody works on.
    pub(super) cancel: Sql,
    /// run: the outermost of it goes on, and what it called, where they wait.
    pub(super) wake_cancelled: Sql,
    /// age in microseconds → [`PRUNED_AT_ONCE`] roots at most. What a run goes on with stays as long as that run does, whose
    /// cumulative limits count it.
    pub(super) prunable: Sql,
    /// [`MANY`] roots → the snapshots of their runs.
    pub(super) prunable_snapshots: Sql,
    /// [`MANY`] roots: the journals of their runs.
    pub(super) prune_entries: Sql,
    /// [`MANY`] roots: the actions of their runs.
    pub(super) prune_actions: Sql,
    /// [`MANY`] roots: what was said in their threads with their runs.
    pub(super) prune_messages: Sql,
    /// [`MANY`] roots: their runs.
    pub(super) prune: Sql,
    /// age in microseconds → [`MANY`] threads at most in which nothing was said for so long, and that have no runs any more.
    pub(super) prunable_threads: Sql,
    /// thread.
    pub(super) prune_thread: Sql,
    /// hash; on PostgreSQL: no row when a run is being made with it just now.
    pub(super) lock_snapshot: Option<Sql>,
    /// hash: a snapshot that no run refers to.
    pub(super) prune_snapshot: Sql,
    /// tenant, project, agent, id → version, hash, id: the version of that id, or else the current one.
    pub(super) defined: Sql,
    /// tenant, project, agent, version, id, hash, definition, author, created at.
    pub(super) define: Sql,
}

const CREATE_HEAD: &str = "INSERT INTO agent_run (id, root_id, parent_run_id, parent_action_id, tenant, user_id, \
     project_id, agent_id, version, definition_hash, snapshot_hash, input, settings, status, holder, lease_until, fence, \
     takes, created_at, started_at, resumed_from, thread_id)";
// Written before: the commit was not acknowledged, and this is the second try.
const CREATE_TAIL: &str = "ON CONFLICT (id) DO NOTHING";

const ENTRY_HEAD: &str = "INSERT INTO agent_run_entry (run_id, number, created_at, elapsed_us, body)";
const ENTRY_TAIL: &str = "ON CONFLICT (run_id, number) DO NOTHING";

// A run that was given up is its last holder's until somebody takes it: what is still on its way to be written, its end
// above all, is not lost for that.
const HELD: &str = "SELECT run.id FROM agent_run root JOIN agent_run run ON run.root_id = root.id WHERE root.id = $1 \
     AND root.fence = $2 AND (root.holder = $3 OR root.holder IS NULL) AND run.id = $4";

/// run: a row where somebody has cancelled it, or one that called it.
pub(super) const CANCELLED: &str = "WITH RECURSIVE caller(id, parent, cancelled) AS (\
     SELECT id, parent_run_id, cancel_requested FROM agent_run WHERE id = $1 UNION ALL \
     SELECT run.id, run.parent_run_id, run.cancel_requested FROM agent_run run JOIN caller ON run.id = caller.parent) \
     SELECT 1 FROM caller WHERE cancelled";

/// What is said of a run that was given up.
pub(super) static GIVEN_UP: LazyLock<String> =
    LazyLock::new(|| Text::ProcessLost.with(&[("many", &MOST_TAKES.to_string())]));

/// Of a run: it was taken too often without being returned, and its lease has run out. A holder that is still there has returned: what it
/// could not write it goes on to write.
pub(super) fn taken_too_often(dialect: Dialect, holder: &str) -> String {
    let now = dialect.now();
    format!(
        "status = 'running' AND lease_until IS NOT NULL AND lease_until <= {now} AND takes >= {MOST_TAKES} AND holder <> {holder}"
    )
}

const NOT_OVER: &str = "status IN ('queued', 'running', 'awaiting_confirmation')";

/// Of a claim: is the run that it made not over?
pub(in super::super) const WORKED_ON: &str = "EXISTS (SELECT 1 FROM agent_run \
     WHERE agent_run.id = idempotency_key.decision_id AND agent_run.completed_at IS NULL)";

/// Of a queued run: no other one of its thread is going, or was there before. One at a time, in their order.
pub(super) const FIRST_OF_THREAD: &str = "(thread_id IS NULL OR NOT EXISTS (SELECT 1 FROM agent_run other \
     WHERE other.thread_id = agent_run.thread_id AND other.id <> agent_run.id \
     AND (other.status = 'queued' OR other.status = 'running' OR other.status = 'awaiting_confirmation') AND (other.status = 'running' OR other.status = 'awaiting_confirmation' OR (other.status = 'queued' \
     AND (other.created_at, other.id) < (agent_run.created_at, agent_run.id)))))";

impl RunStatements {
    pub(in super::super) fn new(dialect: Dialect) -> Self {
        let now = dialect.now();
        let many = vec!["?"; MANY].join(", ");
        let text = |text: String| -> Sql { dialect.placeholders(&text).into() };
        let on_postgres = |text: String| (dialect == Dialect::Postgres).then(|| dialect.placeholders(&text).into());
        Self {
            lock: on_postgres(format!(
                "SELECT id FROM agent_run WHERE id IN ({many}) ORDER BY id FOR UPDATE"
            )),
            lock_root: on_postgres(
                "SELECT root.id FROM agent_run run JOIN agent_run root ON root.id = run.root_id WHERE run.id = ? \
                 FOR UPDATE OF root"
                    .into(),
            ),
            // A run that was called may still stand as one that waits, when the outermost was taken up by itself.
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
            resume: "UPDATE agent_run SET resumed_by = $2 WHERE id = $1 AND status = 'paused' \
                     AND (resumed_by IS NULL OR resumed_by = $2)"
                .into(),
            resumable: "SELECT status, resumed_by FROM agent_run WHERE id = $1".into(),
            unresume: "UPDATE agent_run SET resumed_by = NULL WHERE id = $1 AND resumed_by = $2".into(),
            unresume_by: "UPDATE agent_run SET resumed_by = NULL WHERE resumed_by = $1 \
                          AND id = (SELECT r.resumed_from FROM agent_run r WHERE r.id = $1)"
                .into(),
            abandon: format!(
                "UPDATE agent_run SET status = 'failed', completed_at = {now}, lease_until = NULL, \
                 error_message = 'not begun: its record was not acknowledged in time' \
                 WHERE id = $1 AND (status = 'queued' OR (status = 'running' AND fence = 1 AND holder = $2)) \
                 AND NOT EXISTS (SELECT 1 FROM agent_run_entry WHERE run_id = $1)"
            )
            .into(),
            take: {
                let free = format!(
                    "id = $1 AND parent_run_id IS NULL AND (status = 'queued' OR (status = 'running' AND lease_until <= {now})) \
                     AND (status <> 'queued' OR {FIRST_OF_THREAD}) AND (takes < {MOST_TAKES} OR holder = $2)"
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
            entry: Insert::new(dialect, ENTRY_HEAD, "(?, ?, ?, ?, ?)", ENTRY_TAIL),
            spend: "UPDATE agent_run SET steps = $2, input_tokens = $3, output_tokens = $4, thought_tokens = $5, \
                    cached_tokens = $6 WHERE id = $1"
                .into(),
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
                "SELECT id FROM agent_run WHERE root_id = ? AND parent_run_id IS NOT NULL AND {NOT_OVER} ORDER BY id \
                 FOR UPDATE"
            )),
            end_called: format!(
                "UPDATE agent_run SET status = 'failed', completed_at = $2, \
                 error_message = 'the run that called it was over first' WHERE root_id = $1 AND id <> $1 AND {NOT_OVER}"
            )
            .into(),
            close_called: format!(
                "{} WHERE status = 'open' AND id IN (SELECT id FROM agent_run WHERE root_id = $1 AND id <> $1)",
                recovered("the run that called it was over first")
            )
            .into(),
            doubt_started: "UPDATE tool_invocation_log SET status = 'in_doubt', error_code = 'in_doubt', \
                           error_message = 'sent, and its outcome was not recorded' WHERE status = 'started' \
                           AND decision_id IN (SELECT id FROM agent_run WHERE root_id = $1) \
                           RETURNING id, decision_id, tool, side_effect"
                .into(),
            started: "SELECT decision_id, id, tool, arguments FROM tool_invocation_log WHERE status = 'started' \
                      AND decision_id IN (SELECT id FROM agent_run WHERE root_id = $1) \
                      ORDER BY decision_id, sequence"
                .into(),
            doubt: "UPDATE agent_run SET in_doubt = $2 WHERE id = $1".into(),
            renew: text(format!(
                "UPDATE agent_run SET lease_until = CASE WHEN status = 'running' THEN {now} + CAST(? AS BIGINT) END \
                 WHERE holder = ? AND id IN ({many}) RETURNING id, fence"
            )),
            cancelled: text(format!(
                "SELECT run.id FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
                 WHERE run.root_id IN ({many}) AND run.status = 'running' \
                 AND (run.cancel_requested OR root.cancel_requested) ORDER BY run.id"
            )),
            release: format!(
                "UPDATE agent_run SET lease_until = {now}, holder = NULL, takes = 0 WHERE id = $1 AND fence = $2 AND holder = $3 \
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
            close_given_up: format!("{} WHERE id = $1 AND status = 'open'", recovered(&GIVEN_UP.replace('\'', "''"))).into(),
            effects: "SELECT tool, status FROM agent_action WHERE root_id = $1 AND side_effect \
                      AND (status = 'completed' OR status = 'in_doubt') ORDER BY created_at, id"
                .into(),
            cancel_queued: format!(
                "UPDATE agent_run SET status = 'cancelled', cancel_requested = TRUE, completed_at = {now}, \
                 lease_until = NULL, error_message = 'cancelled before it began' WHERE id = $1 AND status = 'queued'"
            )
            .into(),
            close_cancelled: format!(
                "UPDATE decision_log SET status = 'closed', decision_type = 'REFUSE', \
                 outcome_category = 'REFUSAL:CANCELLED', intent = 'none', error_detail = 'cancelled before it began', \
                 duration_us = CASE WHEN created_at < {now} THEN {now} - created_at ELSE 0 END \
                 WHERE id = $1 AND status = 'open'"
            )
            .into(),
            cancel: format!("UPDATE agent_run SET cancel_requested = TRUE WHERE id = $1 AND {NOT_OVER}").into(),
            wake_cancelled: format!(
                "UPDATE agent_run SET status = 'running', \
                 lease_until = CASE WHEN parent_run_id IS NULL THEN {now} ELSE NULL END \
                 WHERE root_id = (SELECT r.root_id FROM agent_run r WHERE r.id = $1) AND status = 'awaiting_confirmation'"
            )
            .into(),
            prunable: {
                // A run that is being gone on with just now is left for another time, and one that leaves a doubt until somebody
                // settles that.
                let lock = match dialect {
                    Dialect::Sqlite => "",
                    Dialect::Postgres => "FOR UPDATE OF run SKIP LOCKED",
                };
                format!(
                    "SELECT run.id FROM agent_run run WHERE run.parent_run_id IS NULL AND run.completed_at IS NOT NULL \
                     AND run.completed_at <= {now} - $1 AND NOT EXISTS (SELECT 1 FROM agent_run next \
                     WHERE next.id = run.resumed_by) \
                     AND NOT EXISTS (SELECT 1 FROM agent_action action WHERE action.root_id = run.id \
                     AND action.status = 'in_doubt') \
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
                // One in which something is being said just now is left.
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
