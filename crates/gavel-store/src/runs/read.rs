//! Reads of runs, for workers and for the API.

use std::sync::LazyLock;

use super::{CANCELLED, ENTRY, FIRST_OF_THREAD, RUN, taken_too_often};
use crate::db::{Conn, sql, values};
use crate::domain::ids::RunId;
use crate::error::Fault;
use crate::ports::commit::Spent;
use crate::ports::runs::{LoggedEntry, StoredEntry, Turn};
use crate::queue::Batch;
use crate::table::Insert;

/// What the state of a run and the run whole have in common.
pub(super) fn state() -> String {
    format!(
        "run.parent_run_id AS \"origin.parent_run_id\", run.parent_action_id AS \"origin.parent_action_id\", \
         run.thread_id AS \"origin.thread_id\", run.session_id AS \"origin.session_id\", run.attempt, {}",
        RUN.selected_end("run", "end")
    )
}

/// Runs that were taken too often without being returned.
pub(super) fn lost() -> &'static str {
    sql!(
        "SELECT id FROM agent_run WHERE {} ORDER BY lease_until, id LIMIT $2",
        taken_too_often("$1")
    )
}

/// The next run for a worker. Spells the condition of the partial index as its definition does.
pub(super) fn waiting(turn: Turn<'_>) -> &'static str {
    fn waiting(whose: &str, order: &str) -> String {
        format!(
            "SELECT id AS \"run\", tenant, user_id AS \"user\", takes FROM agent_run WHERE parent_run_id IS NULL \
             AND (status = 'queued' OR status = 'running') AND lease_until <= @now AND takes < $1 AND {whose} \
             AND (status <> 'queued' OR {FIRST_OF_THREAD}) ORDER BY {order}, created_at, id LIMIT 1"
        )
    }
    match turn {
        Turn::Tenant(_) => sql!("{}", waiting("tenant > $2", "tenant, user_id")),
        Turn::User(..) => sql!("{}", waiting("tenant = $2 AND user_id > $3", "user_id")),
    }
}

/// The entries of an outermost run with all below it, or of a called run with those below it.
pub(super) fn events() -> &'static str {
    sql!(
        "SELECT {} FROM agent_run_entry WHERE root_id = (SELECT root_id FROM agent_run WHERE id = $1) \
         AND position > $2 AND ((SELECT parent_run_id FROM agent_run WHERE id = $1) IS NULL OR run_id IN (\
         WITH RECURSIVE below(id) AS (SELECT id FROM agent_run WHERE id = $1 UNION ALL \
         SELECT run.id FROM agent_run run JOIN below ON run.parent_run_id = below.id) SELECT id FROM below)) \
         ORDER BY position LIMIT $3",
        ENTRY.selected()
    )
}

// The journal of a run and its usage, as they grow.

impl Batch<'_> {
    /// Whether the run, or a run above it, was cancelled, and this entry was not written before that. The worker may
    /// not have seen the cancellation yet.
    pub(crate) async fn is_cancelled_before(&self, conn: &mut Conn, run: RunId, entry: u64) -> Result<bool, Fault> {
        let cancelled = sql!(
            "{CANCELLED} AND NOT EXISTS (SELECT 1 FROM agent_run_entry WHERE run_id = $1 AND number = $2) LIMIT 1"
        );
        Ok(conn.exists(cancelled, values![run, entry]).await?)
    }

    /// Updates the usage of a run while it runs.
    pub(crate) async fn update_usage(&self, conn: &mut Conn, spent: &Spent) -> Result<(), Fault> {
        let update = "UPDATE agent_run SET steps = $2, input_tokens = $3, output_tokens = $4, thought_tokens = $5, \
                      cached_tokens = $6 WHERE id = $1";
        let usage = spent.usage;
        let values = values![
            spent.run,
            spent.steps,
            usage.input_tokens,
            usage.output_tokens,
            usage.thought_tokens,
            usage.cached_tokens,
        ];
        conn.execute(update, values).await?;
        Ok(())
    }

    /// Adds entries to the journal of a run, and to the event log of its outermost run, whose last position is `last`.
    pub(crate) async fn enter(
        &self,
        conn: &mut Conn,
        root: RunId,
        run: RunId,
        last: u64,
        entries: &[StoredEntry],
    ) -> Result<(), Fault> {
        static ENTER: LazyLock<Insert> = LazyLock::new(|| ENTRY.inserts("ON CONFLICT (run_id, number) DO NOTHING"));
        let mut rows = Vec::with_capacity(entries.len() * 7);
        for (position, entry) in (last + 1..).zip(entries.iter().cloned()) {
            rows.extend(ENTRY.begin(&(root, LoggedEntry { position, run, entry }), self.writing));
        }
        ENTER.run(conn, rows).await?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::connect::Target;
    use super::super::super::db::{Dialect, Value, explain};
    use super::super::super::migrate;
    use super::*;
    use crate::domain::ids::TenantId;

    /// The checks for due work, which every process repeats all the time, read only due rows.
    #[tokio::test]
    async fn an_index_answers_what_is_asked_all_the_time() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("plan.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, migrate::PATIENCE).await.unwrap();
        let tenant = TenantId::parse("t").unwrap();
        let in_turn = &["agent_run_in_turn", "agent_run_open_in_thread"][..];
        for (sql, indexes) in [
            (lost(), &["agent_run_running"][..]),
            (waiting(Turn::Tenant("")), in_turn),
            (waiting(Turn::User(&tenant, "")), in_turn),
            (
                events(),
                &[
                    "agent_run_entry_position",
                    "autoindex_agent_run_1",
                    "autoindex_agent_run_1",
                    "autoindex_agent_run_1",
                    "agent_run_by_call",
                ],
            ),
        ] {
            let values = vec![Value::from(1_i64); 3];
            let plan = explain(&mut conn, &Dialect::Sqlite.expand(sql), values).await;
            // `below` are the runs that were found so far.
            let is_read =
                |step: &&String| (step.starts_with("SEARCH") || step.starts_with("SCAN")) && *step != "SCAN below";
            let reads: Vec<_> = plan.iter().filter(is_read).collect();
            assert_eq!(reads.len(), indexes.len(), "{sql}: {plan:?}");
            for (step, index) in reads.into_iter().zip(indexes) {
                assert!(step.starts_with("SEARCH") && step.contains(index), "{sql}: {plan:?}");
            }
        }
        conn.close().await;
    }
}
