//! What goes: rows of the logs after `records.keep_days`, and the texts of a user on request.

use std::time::{Duration, SystemTime};

use uuid::{NoContext, Timestamp, Uuid};

use super::audit::{AuditKind, Entry, Whose};
use super::config::UNKNOWN;
use super::db::{Conn, Value, sql, values};
use super::decisions::{CALL, DECISION};
use super::error::Fault;
use super::queue::Batch;
use crate::domain::ids::{DecisionId, TenantId, UserId};
use crate::ports::records::Erasure;

/// Decisions of one transaction: few enough that it does not block others.
const AT_ONCE: usize = 500;
/// The run of a decision is gone, or there was none.
const WITHOUT_RUN: &str = "NOT EXISTS (SELECT 1 FROM agent_run run WHERE run.id = decision_log.id)";

/// Whose rows a statement is about: of one user, or of all.
pub(super) type Of<'a> = Option<(&'a TenantId, &'a UserId)>;

/// The condition of [`Of`], whose values are `$2` and `$3`.
pub(super) const OF: &str = "(CAST($2 AS TEXT) IS NULL OR (tenant = $2 AND user_id = $3))";

/// How long rows are kept, and whose.
pub(super) fn kept_of(kept: Duration, of: Of<'_>) -> Vec<Value> {
    values![kept, of.map(|(tenant, _)| tenant), of.map(|(_, user)| user)]
}

impl Batch<'_> {
    /// Deletes closed decisions from before that time, with their calls and texts, once all that changed is counted.
    /// True if there may be more.
    pub(super) async fn prune_records(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        // Whole quarters only.
        const UNTIL: &str = "(@now - $1) / 900000000";
        let uncounted = sql!("SELECT 1 FROM stats_dirty WHERE quarter < {UNTIL}");
        if conn.exists(uncounted, values![kept]).await? {
            return Ok(false);
        }
        let end = sql!("UPDATE stats_final SET quarter = {UNTIL} WHERE quarter < {UNTIL}");
        conn.execute(end, values![kept]).await?;
        // Ids are ordered by time, so their index finds the old ones.
        let old = sql!(
            "SELECT id FROM decision_log WHERE id < $2 AND created_at / 900000000 < {UNTIL} \
             AND status = 'closed' AND {WITHOUT_RUN} ORDER BY id LIMIT {AT_ONCE}"
        );
        let old: Vec<DecisionId> = conn.all(old, values![kept, first_id(kept)]).await?;
        let may_be_more = old.len() == AT_ONCE;
        let old = vec![Value::list(old)];
        self.erase_audit(conn, &old).await?;
        for delete in [
            "DELETE FROM tool_invocation_log WHERE decision_id @in($1)",
            "DELETE FROM decision_log WHERE id @in($1)",
        ] {
            conn.execute(delete, old.clone()).await?;
        }
        let texts = "DELETE FROM content_blob WHERE last_seen_day < (@now - $1) / 86400000000";
        conn.execute(texts, values![kept]).await?;
        Ok(may_be_more)
    }

    /// Erases a part of the texts of a user: first those of ended sessions, runs and threads with their rows, then those
    /// of the logs, page by page. What is in progress or in doubt is left.
    pub(super) async fn erase(&self, conn: &mut Conn, erasure: &Erasure) -> Result<Erasure, Fault> {
        let Erasure { tenant, user, .. } = erasure;
        let of = Some((tenant, user));
        let mut next = erasure.clone();
        if self.prune_runs_of(conn, Duration::ZERO, of).await? {
            return Ok(next);
        }
        let page = sql!(
            "SELECT id FROM decision_log WHERE tenant = $1 AND user_id = $2 AND id > $3 AND status = 'closed' \
             AND {WITHOUT_RUN} ORDER BY id LIMIT {AT_ONCE}"
        );
        let after = erasure.after.as_deref().unwrap_or_default();
        let page: Vec<String> = conn.all(page, values![tenant, user, after]).await?;
        let last = page.last().cloned();
        next.after = last.filter(|_| page.len() == AT_ONCE);
        let page = vec![Value::list(page)];
        let decisions = sql!(
            "UPDATE decision_log SET {} WHERE id @in($1)",
            without_texts(DECISION.texts())
        );
        // A name that the model made up may be any text.
        let calls = sql!(
            "UPDATE tool_invocation_log SET {}, tool = CASE WHEN server IS NULL THEN '{UNKNOWN}' ELSE tool END \
             WHERE decision_id @in($1)",
            without_texts(CALL.texts())
        );
        next.erased.decisions += conn.execute(decisions, page.clone()).await?;
        next.erased.tool_invocations += conn.execute(calls, page.clone()).await?;
        self.erase_audit(conn, &page).await?;
        if next.after.is_none() {
            self.end_erasure(conn, &mut next).await?;
        }
        Ok(next)
    }

    /// What no decision leads to, what is left, and the entry in the audit log.
    async fn end_erasure(&self, conn: &mut Conn, erasure: &mut Erasure) -> Result<(), Fault> {
        let Erasure { tenant, user, .. } = &*erasure;
        let whose = values![tenant, user];
        for erase in [
            "DELETE FROM content_blob WHERE tenant = $1 AND user_id = $2",
            "UPDATE approval_grant SET recipients = '{}' WHERE tenant = $1 AND user_id = $2 AND revoked_at IS NOT NULL",
            "UPDATE audit SET texts = NULL WHERE tenant = $1 AND actor IN ($2, 'user:' || $2) AND texts IS NOT NULL \
             AND kind <> 'effect_intended'",
            "UPDATE audit SET texts = NULL WHERE texts IS NOT NULL AND subject IN \
             (SELECT id FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND revoked_at IS NOT NULL)",
        ] {
            conn.execute(erase, whose.clone()).await?;
        }
        let left = sql!(
            "SELECT (SELECT COUNT(*) FROM agent_run WHERE tenant = $1 AND user_id = $2) + \
             (SELECT COUNT(*) FROM decision_log WHERE tenant = $1 AND user_id = $2 AND status = 'open' AND {WITHOUT_RUN})"
        );
        let left: Option<i64> = conn.one(left, whose).await?;
        erasure.erased.left = left.and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
        let entry = Entry::new(AuditKind::ContentErased, erasure.erased.erasure_id)
            .for_(Whose::new(erasure.tenant.as_str(), erasure.user.as_str()))
            .by(&erasure.actor)
            .with("decisions", erasure.erased.decisions)
            .with("tool_invocations", erasure.erased.tool_invocations)
            .with("left", erasure.erased.left);
        self.audit(entry);
        Ok(())
    }

    /// Erases the texts of the entries about these decisions. The chain has only their digests.
    async fn erase_audit(&self, conn: &mut Conn, decisions: &[Value]) -> Result<(), Fault> {
        let erase = "UPDATE audit SET texts = NULL WHERE texts IS NOT NULL AND decision_id @in($1)";
        conn.execute(erase, decisions.to_vec()).await?;
        Ok(())
    }
}

/// The lowest id of that time.
fn first_id(kept: Duration) -> Uuid {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = since_epoch.saturating_sub(kept).as_secs();
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, 0))
}

fn without_texts<'a>(columns: impl Iterator<Item = &'a str>) -> String {
    columns
        .map(|column| format!("{column} = NULL"))
        .collect::<Vec<_>>()
        .join(", ")
}
