//! Reads of runs, for workers and for the API.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::super::claims;
use super::super::config::ContentMode;
use super::super::db::{Dialect, Row, Value};
use super::super::parsed::{opt_parsed, parsed};
use super::super::{ReadOnly, Store};
use super::row::{SHOWN, in_doubt, json, opt_run_id, run_id, shown, usage};
use super::statements::{CANCELLED, FIRST_OF_THREAD, taken_too_often};
use crate::domain::agent_run::{AgentRun, RunStatus, StopReason};
use crate::domain::ids::{ActionId, ConversationId, PlanningSessionId, ProjectId, RunId, TenantId, ThreadId, UserId};
use crate::domain::policy::SURFACES;
use crate::ports::claims::{Claim, Claimed};
use crate::ports::records::{OpenDecision, QueryError, RecordError};
use crate::ports::runs::{LoggedEntry, MOST_TAKES, Origin, RunState, Snapshot, StoredEntry, StoredRun, Turn, Waiting};

const STORED: &str = "SELECT run.status, run.tenant, run.user_id, run.project_id, run.agent_id, run.version, \
     run.parent_run_id, run.parent_action_id, run.attempt, run.input, run.settings, \
     run.cancel_requested OR root.cancel_requested, run.fence - run.reopened_fence, run.started_at, run.summary, run.output, \
     run.error_message, run.stop_reason, run.in_doubt, run.steps, snapshot.hash, snapshot.text, decision.surface, \
     decision.conversation_id, decision.message, decision.definition_hash, decision.request_id, decision.created_at, \
     run.input_tokens, run.output_tokens, run.thought_tokens, run.cached_tokens, run.thread_id, run.session_id, run.takes, \
     run.worked_us, decision.requested_model FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
     JOIN agent_snapshot snapshot ON snapshot.hash = run.snapshot_hash \
     JOIN decision_log decision ON decision.id = run.id WHERE run.id = $1";

const RUN_STATE: &str = "SELECT status, parent_run_id, parent_action_id, attempt, in_doubt, steps, input_tokens, \
     output_tokens, thought_tokens, cached_tokens, thread_id, session_id FROM agent_run WHERE id = $1";

const JOURNAL: &str = "SELECT number, created_at, elapsed_us, body FROM agent_run_entry WHERE run_id = $1 \
     AND number > $2 ORDER BY number LIMIT $3";

/// The entries of an outermost run with all below it, or of a called run with those below it.
const EVENTS: &str = "SELECT entry.position, entry.run_id, entry.number, entry.created_at, entry.elapsed_us, entry.body \
     FROM agent_run watched JOIN agent_run_entry entry ON entry.root_id = watched.root_id \
     WHERE watched.id = $1 AND entry.position > $2 AND (watched.parent_run_id IS NULL OR entry.run_id IN (\
     WITH RECURSIVE below(id) AS (SELECT id FROM agent_run WHERE id = $1 UNION ALL \
     SELECT run.id FROM agent_run run JOIN below ON run.parent_run_id = below.id) SELECT id FROM below)) \
     ORDER BY entry.position LIMIT $3";

impl Store {
    pub(super) async fn lost_runs(&self, most: u32) -> Result<Vec<RunId>, RecordError> {
        let sql = lost(self.shared.target.dialect());
        let values = vec![self.shared.writing.owner.clone(), Value::Int(Some(i64::from(most)))];
        let mut lost = Vec::new();
        self.working
            .rows(sql.into(), values, &mut |row| {
                lost.push(run_id(&row, 0)?);
                Ok(ControlFlow::Continue(()))
            })
            .await
            .map_err(away)?;
        Ok(lost)
    }

    pub(super) async fn waiting_run(&self, turn: Turn<'_>, takes: u32) -> Result<Option<Waiting>, RecordError> {
        let sql = waiting(self.shared.target.dialect(), turn);
        let mut values = vec![Value::Int(Some(i64::from(takes)))];
        match turn {
            Turn::Tenant(after) => values.push(Value::text(after)),
            Turn::User(tenant, after) => values.extend([Value::text(tenant.as_str()), Value::text(after)]),
        }
        let mut found = None;
        self.working
            .rows(sql.into(), values, &mut |row| {
                found = Some(Waiting {
                    run: run_id(&row, 0)?,
                    tenant: parsed(&row, 1, |text| TenantId::parse(text).ok())?,
                    user: parsed(&row, 2, |text| UserId::parse(text).ok())?,
                    takes: row.int(3)?.try_into().unwrap_or(u32::MAX),
                });
                Ok(ControlFlow::Break(()))
            })
            .await
            .map_err(away)?;
        Ok(found)
    }

    pub(super) async fn claim_found(&self, claim: &Claim) -> Result<Option<Claimed>, QueryError> {
        let sql = Arc::clone(&self.shared.statements.claimed);
        let mut met = None;
        self.working
            .rows(sql, vec![Value::shared(&claim.scope)], &mut |row| {
                met = Some(claims::found(&row, claim, None)?);
                Ok(ControlFlow::Break(()))
            })
            .await?;
        Ok(met)
    }

    pub(super) async fn stored_run(&self, run: RunId) -> Result<Option<StoredRun>, QueryError> {
        let mut found = None;
        let keeps_words = matches!(self.shared.writing.content, ContentMode::Full);
        self.working
            .rows(STORED.into(), vec![Value::text(&run.to_string())], &mut |row| {
                found = Some(stored(&row, run, keeps_words)?);
                Ok(ControlFlow::Break(()))
            })
            .await?;
        Ok(found)
    }

    pub(super) async fn run_state_of(&self, run: RunId) -> Result<Option<RunState>, QueryError> {
        let mut found = None;
        self.working
            .rows(RUN_STATE.into(), vec![Value::text(&run.to_string())], &mut |row| {
                found = Some(RunState {
                    status: parsed(&row, 0, RunStatus::parse)?,
                    origin: origin(&row, 1, 10)?,
                    attempt: row.int(3)?.try_into().unwrap_or(u32::MAX),
                    in_doubt: in_doubt(&row, 4)?,
                    steps: row.int(5)?.try_into().unwrap_or(u32::MAX),
                    usage: usage(&row, 6)?,
                });
                Ok(ControlFlow::Break(()))
            })
            .await?;
        Ok(found)
    }

    pub(super) async fn cancelled(&self, run: RunId) -> Result<bool, QueryError> {
        let mut found = false;
        self.working
            .rows(CANCELLED.into(), vec![Value::text(&run.to_string())], &mut |_| {
                found = true;
                Ok(ControlFlow::Break(()))
            })
            .await?;
        Ok(found)
    }

    pub(super) async fn entries(&self, run: RunId, after: u64, most: u32) -> Result<Vec<StoredEntry>, QueryError> {
        let mut entries = Vec::new();
        self.working
            .rows(JOURNAL.into(), page(run, after, most), &mut |row| {
                entries.push(entry(&row, 0)?);
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(entries)
    }

    pub(super) async fn logged(
        &self,
        run: RunId,
        after: u64,
        most: u32,
        bytes: usize,
    ) -> Result<Vec<LoggedEntry>, QueryError> {
        let (mut entries, mut held) = (Vec::new(), 0);
        self.working
            .rows(EVENTS.into(), page(run, after, most), &mut |row| {
                let logged = LoggedEntry {
                    position: row.int(0)?.unsigned_abs(),
                    run: run_id(&row, 1)?,
                    entry: entry(&row, 2)?,
                };
                held += logged.entry.body.len();
                entries.push(logged);
                Ok(match held > bytes {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            })
            .await?;
        Ok(entries)
    }

    pub(super) async fn shown_run(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        run: RunId,
    ) -> Result<Option<AgentRun>, QueryError> {
        self.working.run(tenant, user, run).await
    }
}

impl ReadOnly {
    /// The public form of a run; `None` when the tenant (or the given user) has no such run.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn run(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        run: RunId,
    ) -> Result<Option<AgentRun>, QueryError> {
        let mut sql = format!("SELECT {SHOWN} FROM agent_run WHERE id = $1 AND tenant = $2");
        let mut values = vec![Value::text(&run.to_string()), Value::text(tenant.as_str())];
        if let Some(user) = user {
            sql.push_str(" AND user_id = $3");
            values.push(Value::text(user.as_str()));
        }
        let mut found = None;
        self.rows(sql.into(), values, &mut |row| {
            found = Some(shown(&row, &mut 0)?);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        Ok(found)
    }
}

/// holder, number of rows → runs that were taken too often without being returned.
fn lost(dialect: Dialect) -> String {
    format!(
        "SELECT id FROM agent_run WHERE {} ORDER BY lease_until, id LIMIT $2",
        taken_too_often(dialect, "$1")
    )
}

/// takes, name (or tenant and name) → run, tenant, user, takes. Spells the condition of the partial index as its
/// definition does.
fn waiting(dialect: Dialect, turn: Turn<'_>) -> String {
    let (whose, order) = match turn {
        Turn::Tenant(_) => ("tenant > $2", "tenant, user_id"),
        Turn::User(..) => ("tenant = $2 AND user_id > $3", "user_id"),
    };
    format!(
        "SELECT id, tenant, user_id, takes FROM agent_run WHERE parent_run_id IS NULL \
         AND (status = 'queued' OR status = 'running') AND lease_until <= {} AND takes < $1 AND {whose} \
         AND (status <> 'queued' OR {FIRST_OF_THREAD}) ORDER BY {order}, created_at, id LIMIT 1",
        dialect.now()
    )
}

fn away(error: QueryError) -> RecordError {
    RecordError::Unavailable(error.to_string().into())
}

fn stored(row: &Row, id: RunId, keeps_words: bool) -> Result<StoredRun, sqlx::Error> {
    let message = row.opt_text(24)?.filter(|_| keeps_words).unwrap_or_default();
    Ok(StoredRun {
        id,
        status: parsed(row, 0, RunStatus::parse)?,
        project: parsed(row, 3, |text| ProjectId::parse(text).ok())?,
        agent: row.text(4)?.into(),
        version: row.opt_int(5)?,
        decision: OpenDecision {
            id: id.decision(),
            tenant: parsed(row, 1, |text| TenantId::parse(text).ok())?,
            surface: parsed(row, 22, |text| SURFACES.into_iter().find(|surface| *surface == text))?,
            user: parsed(row, 2, |text| UserId::parse(text).ok())?,
            conversation: parsed(row, 23, |text| ConversationId::parse(text).ok())?,
            message: message.into(),
            definition_hash: row.text(25)?.into(),
            requested_model: row.text(36)?.into(),
            request_id: row.text(26)?.into(),
            created_at: row.int(27)?,
        },
        origin: origin(row, 6, 32)?,
        attempt: row.int(8)?.try_into().unwrap_or(u32::MAX),
        snapshot: Snapshot {
            hash: row.text(20)?.into(),
            text: row.text(21)?.into(),
        },
        input: parsed(row, 9, json)?.into(),
        settings: parsed(row, 10, json)?.into(),
        cancel: row.bool(11)?,
        takes: row.int(12)?,
        is_lost: row.int(34)? > i64::from(MOST_TAKES),
        worked: Duration::from_micros(row.int(35)?.unsigned_abs()),
        started_at: row.opt_int(13)?,
        summary: row.opt_text(14)?.map(Arc::from),
        output: opt_parsed(row, 15, json)?.map(Arc::from),
        error_message: row.opt_text(16)?.map(Arc::from),
        stop_reason: opt_parsed(row, 17, StopReason::parse)?,
        in_doubt: in_doubt(row, 18)?,
        steps: row.int(19)?.try_into().unwrap_or(u32::MAX),
        usage: usage(row, 28)?,
    })
}

/// From the columns of the calling run and its call, and those of the thread and the planning session.
fn origin(row: &Row, parent: usize, thread: usize) -> Result<Origin, sqlx::Error> {
    let parent = opt_run_id(row, parent)?.zip(opt_parsed(row, parent + 1, ActionId::parse)?);
    let session = opt_parsed(row, thread + 1, PlanningSessionId::parse)?;
    Ok(match (parent, opt_parsed(row, thread, ThreadId::parse)?, session) {
        (Some(parent), ..) => Origin::Called(parent),
        (None, Some(thread), _) => Origin::Thread(thread),
        (None, None, Some(session)) => Origin::Session(session),
        (None, None, None) => Origin::Trigger,
    })
}

/// The parameters of a page: run, position after which it begins, most rows.
fn page(run: RunId, after: u64, most: u32) -> Vec<Value> {
    vec![
        Value::text(&run.to_string()),
        Value::Int(Some(i64::try_from(after).unwrap_or(i64::MAX))),
        Value::Int(Some(i64::from(most))),
    ]
}

/// The four columns from `first` on.
fn entry(row: &Row, first: usize) -> Result<StoredEntry, sqlx::Error> {
    Ok(StoredEntry {
        number: row.int(first)?.unsigned_abs(),
        at_us: row.int(first + 1)?,
        elapsed_us: row.int(first + 2)?,
        body: row.text(first + 3)?.into(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::connect::Target;
    use super::super::super::migrate;
    use super::super::RunStatements;
    use super::*;

    /// The checks for due work, which every process repeats all the time, read only due rows.
    #[tokio::test]
    async fn an_index_answers_what_is_asked_all_the_time() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("plan.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, migrate::PATIENCE).await.unwrap();
        let texts = RunStatements::new(Dialect::Sqlite);
        let reads = |step: &str| step.starts_with("SEARCH") || step.starts_with("SCAN");
        let tenant = TenantId::parse("t").unwrap();
        for (sql, indexes) in [
            (lost(Dialect::Sqlite).into(), &["agent_run_running"][..]),
            (
                waiting(Dialect::Sqlite, Turn::Tenant("")).into(),
                &["agent_run_in_turn", "agent_run_open_in_thread"],
            ),
            (
                waiting(Dialect::Sqlite, Turn::User(&tenant, "")).into(),
                &["agent_run_in_turn", "agent_run_open_in_thread"],
            ),
            (
                texts.prunable,
                &["agent_run_over", "agent_action_by_root", "autoindex_planning_session_1"],
            ),
            (
                texts.holds,
                &[
                    "autoindex_agent_run_1",
                    "autoindex_agent_run_1",
                    "agent_run_entry_position",
                ],
            ),
            (
                EVENTS.into(),
                &[
                    "autoindex_agent_run_1",
                    "agent_run_entry_position",
                    "autoindex_agent_run_1",
                    "agent_run_by_call",
                ],
            ),
            (texts.called, &["agent_run_by_call"]),
            (texts.take, &["autoindex_agent_run_1", "agent_run_open_in_thread"]),
            (texts.renew, &["autoindex_agent_run_1"]),
            (texts.cancelled, &["autoindex_agent_run_1", "agent_run_by_root"]),
            (texts.end_called, &["agent_run_by_root"]),
            (
                texts.prune_snapshot,
                &["autoindex_agent_snapshot_1", "agent_run_by_snapshot"],
            ),
        ] {
            let mut plan = Vec::new();
            let values = vec![Value::Int(Some(1)); 40];
            conn.fetch(&format!("EXPLAIN QUERY PLAN {sql}").into(), values, &mut |row| {
                plan.push(row.text(3)?);
                Ok(ControlFlow::Continue(()))
            })
            .await
            .unwrap();
            // `below` are the runs that were found so far.
            let searches = plan.iter().filter(|step| reads(step) && *step != "SCAN below");
            let searches: Vec<_> = searches.collect();
            assert_eq!(searches.len(), indexes.len(), "{sql}: {plan:?}");
            for (step, index) in searches.into_iter().zip(indexes) {
                assert!(step.starts_with("SEARCH") && step.contains(index), "{sql}: {plan:?}");
            }
        }
        conn.close().await;
    }
}
