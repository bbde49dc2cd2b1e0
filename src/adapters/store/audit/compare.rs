//! Compares other tables with the audit log: side effects, approval requests and their resolutions, grants.
//!
//! Each statement reads a page of a table, and for each row the matching audit entries.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use super::super::db::{Conn, Dialect, Row, Value};
use super::super::error::StoreError;
use super::columns::{PAGE, bytes, read_text};
use super::entry::field;
use super::finding::Finding;
use super::verify::Verifier;

/// Compares everything.
pub(super) async fn all(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    effects(conn, verifier).await?;
    questions(conn, verifier).await?;
    grants(conn, verifier).await
}

/// Side effects of the tool-call log.
async fn effects(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    let texts = Texts::new(
        conn.dialect(),
        &[
            "t.tool",
            "i.tool",
            "t.tenant",
            "i.tenant",
            "t.user_id",
            "t.server",
            "t.tool_digest",
            "t.arguments",
            "i.detail",
        ],
    );
    let sql = format!(
        "SELECT t.decision_id, t.sequence, t.id, t.status, \
         i.subject IS NOT NULL OR (t.side_effect AND t.started_at IS NOT NULL), \
         EXISTS (SELECT 1 FROM audit a WHERE a.subject = t.id), \
         CASE t.status WHEN 'started' THEN NOT {} WHEN 'not_sent' THEN NOT {} ELSE {} END, \
         t.side_effect, {} \
         FROM (SELECT * FROM tool_invocation_log WHERE (decision_id, sequence) > ($1, $2) \
         ORDER BY decision_id, sequence LIMIT {PAGE}) t \
         LEFT JOIN audit i ON i.subject = t.id AND i.kind = 'effect_intended' ORDER BY t.decision_id, t.sequence",
        entered(
            "t",
            &["effect_completed", "effect_failed", "effect_in_doubt", "doubt_settled"]
        ),
        entered("t", &["effect_completed", "effect_in_doubt", "doubt_settled"]),
        entered_end("t"),
        texts.columns
    );
    let mut after = (String::new(), 0);
    loop {
        let values = vec![Value::text(&after.0), Value::Int(Some(after.1))];
        let mut read = 0;
        conn.fetch(&sql.as_str().into(), values, &mut |row| {
            read += 1;
            after = (row.text(0)?, row.int(1)?);
            if !row.bool(4)? {
                return Ok(ControlFlow::Continue(()));
            }
            let (decision_id, action_id, status) = (row.text(0)?, row.text(2)?, row.text(3)?);
            if !row.bool(5)? {
                verifier.find(Finding::NotEntered {
                    decision_id,
                    action_id,
                    status,
                });
            } else if !row.bool(6)? {
                verifier.find(Finding::OutcomeMismatch {
                    decision_id,
                    action_id,
                    status,
                });
            } else if let Some(differs) = effect_differs(&texts, &row)? {
                verifier.find(Finding::EffectDiffers {
                    decision_id,
                    action_id,
                    differs,
                });
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        if read < PAGE {
            return Ok(());
        }
    }
}

/// The facts in which a side effect and its entry differ.
fn effect_differs(texts: &Texts, row: &Row) -> Result<Option<Vec<&'static str>>, sqlx::Error> {
    let [call @ .., arguments, detail] = texts.read::<9>(row, 8)?;
    let mut differs = Differs::default();
    if let Some(detail) = detail {
        differs.call(call, &detail);
        // Both rows were written in the same transaction, with the same `records.content`, and neither is reduced later.
        differs.entered("arguments", arguments, field(&detail, "arguments"));
        differs.unless("side-effect flag", row.bool(7)?);
    }
    Ok(differs.found())
}

/// Approval requests and resolutions, as the console and the surfaces show them.
async fn questions(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    let texts = Texts::new(
        conn.dialect(),
        &[
            "q.tool",
            "a.tool",
            "q.tenant",
            "a.tenant",
            "q.user_id",
            "q.server",
            "q.tool_digest",
            "q.arguments",
            "q.details",
            "a.detail",
            "q.resolution",
            "r.detail",
            "q.resolved_by",
            "r.actor",
        ],
    );
    let sql = format!(
        "SELECT q.id, a.subject IS NOT NULL, \
         CASE WHEN NOT {} THEN NOT q.side_effect OR q.status NOT IN ('executing', 'completed', 'in_doubt') \
         WHEN NOT q.side_effect THEN {NEVER} WHEN q.status = 'executing' THEN NOT {} ELSE {} END, {} FROM agent_action q \
         LEFT JOIN audit a ON a.subject = q.id AND a.kind = 'approval_requested' \
         LEFT JOIN audit r ON r.subject = q.id AND r.kind = 'approval_resolved' \
         WHERE q.approval_id IS NOT NULL AND q.id > $1 ORDER BY q.id LIMIT {PAGE}",
        entered("q", &["effect_intended"]),
        entered(
            "q",
            &["effect_completed", "effect_failed", "effect_in_doubt", "doubt_settled"]
        ),
        entered_end("q"),
        texts.columns
    );
    let mut after = String::new();
    loop {
        let mut read = 0;
        conn.fetch(&sql.as_str().into(), vec![Value::text(&after)], &mut |row| {
            read += 1;
            after = row.text(0)?;
            if let Some(differs) = approval_differs(&texts, &row)? {
                let action_id = after.clone();
                verifier.find(Finding::ApprovalDiffers { action_id, differs });
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        if read < PAGE {
            return Ok(());
        }
    }
}

/// The facts in which an approval request, or its resolution, and their entries differ.
fn approval_differs(texts: &Texts, row: &Row) -> Result<Option<Vec<&'static str>>, sqlx::Error> {
    let [call @ .., arguments, shown, requested, resolution, resolved, by, of_by] = texts.read::<14>(row, 3)?;
    let mut differs = Differs::default();
    differs.unless("whether approval was requested", row.bool(1)?);
    if let Some(requested) = requested {
        let hash = |text: String| hex::encode(Sha256::digest(text));
        differs.call(call, &requested);
        differs.entered("arguments", arguments.map(hash), field(&requested, "arguments_sha256"));
        differs.entered("details shown", shown.map(hash), field(&requested, "question_sha256"));
    }
    let entered = resolved.and_then(|detail| field(&detail, "decision"));
    differs.unless("resolution", resolution == entered);
    differs.unless("approver", by == of_by);
    differs.unless("outcome", row.bool(2)?);
    Ok(differs.found())
}

/// Grants that are not revoked. Recipients that were stored as a keyed hash cannot be compared.
async fn grants(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    let texts = Texts::new(
        conn.dialect(),
        &[
            "g.user_id",
            "g.server",
            "g.tool_digest",
            "g.recipients",
            "g.tool",
            "a.tool",
            "a.detail",
            "g.tenant",
            "a.tenant",
            "g.created_by",
            "a.actor",
        ],
    );
    let sql = format!(
        "SELECT g.id, {}, EXISTS (SELECT 1 FROM audit r WHERE r.subject = g.id AND r.kind = 'grant_revoked') \
         FROM approval_grant g LEFT JOIN audit a ON a.subject = g.id AND a.kind = 'grant_created' \
         WHERE g.revoked_at IS NULL AND g.id > $1 ORDER BY g.id LIMIT {PAGE}",
        texts.columns
    );
    let mut after = String::new();
    loop {
        let mut read = 0;
        conn.fetch(&sql.as_str().into(), vec![Value::text(&after)], &mut |row| {
            read += 1;
            after = row.text(0)?;
            let [
                user,
                server,
                digest,
                recipients,
                tool,
                of_tool,
                detail,
                tenant,
                of_tenant,
                by,
                of_by,
            ] = texts.read(&row, 1)?;
            let detail = detail.unwrap_or_default();
            let entered = field(&detail, "recipients").filter(|entered| entered.starts_with('{'));
            let same = tool == of_tool
                && tenant == of_tenant
                && by == of_by
                && user == field(&detail, "user")
                && server == field(&detail, "server")
                && digest == field(&detail, "tool_digest")
                && (entered.is_none() || entered == recipients)
                && !row.bool(12)?;
            if !same {
                let grant_id = after.clone();
                verifier.find(Finding::GrantUnrecorded { grant_id });
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        if read < PAGE {
            return Ok(());
        }
    }
}

/// SQL that is false, in both dialects.
const NEVER: &str = "(1 = 0)";

/// SQL: whether the row `of` has an entry of one of these kinds.
fn entered(of: &str, kinds: &[&str]) -> String {
    let kinds = kinds.join("', '");
    format!("EXISTS (SELECT 1 FROM audit k WHERE k.subject = {of}.id AND k.kind IN ('{kinds}'))")
}

/// SQL: whether the audit log has the outcome that the row `of` has. For a settled action that is the settlement, with
/// the call as subject, or with the call and the resumed run.
fn entered_end(of: &str) -> String {
    let settled = |and: &str| {
        format!(
            "(EXISTS (SELECT 1 FROM audit s WHERE s.subject = {of}.id AND s.kind = 'doubt_settled'{and}) \
             OR EXISTS (SELECT 1 FROM audit s WHERE s.kind = 'doubt_settled' \
             AND s.subject > {of}.id || ':' AND s.subject < {of}.id || ';'{and}))"
        )
    };
    let as_settled = settled(&format!(
        " AND s.detail LIKE CASE {of}.status WHEN 'completed' THEN '%\"happened\":true%' \
         WHEN 'failed' THEN '%\"happened\":false%' ELSE '' END"
    ));
    format!(
        "CASE WHEN {} THEN {as_settled} \
         ELSE EXISTS (SELECT 1 FROM audit e WHERE e.subject = {of}.id AND e.kind = 'effect_' || {of}.status) END",
        settled("")
    )
}

/// Text columns of a statement, read whatever type of value they hold.
struct Texts {
    dialect: Dialect,
    columns: String,
}

impl Texts {
    fn new(dialect: Dialect, columns: &[&str]) -> Self {
        let column = |column: &&str| match dialect {
            Dialect::Postgres => (*column).to_owned(),
            Dialect::Sqlite => bytes(column),
        };
        Self {
            dialect,
            columns: columns.iter().map(column).collect::<Vec<_>>().join(", "),
        }
    }

    /// The texts of a row, from column `first` on.
    fn read<const N: usize>(&self, row: &Row, first: usize) -> Result<[Option<String>; N], sqlx::Error> {
        let mut texts = [const { None }; N];
        for (text, at) in texts.iter_mut().zip(first..) {
            *text = read_text(self.dialect, row, at)?;
        }
        Ok(texts)
    }
}

/// The facts in which two tables differ.
#[derive(Default)]
struct Differs(Vec<&'static str>);

impl Differs {
    fn unless(&mut self, what: &'static str, same: bool) {
        if !same {
            self.0.push(what);
        }
    }

    /// An entry for a decision that had already been deleted is empty.
    fn entered(&mut self, what: &'static str, stored: Option<String>, entered: Option<String>) {
        let unknown = entered.as_deref().is_none_or(str::is_empty);
        self.unless(what, unknown || stored == entered);
    }

    /// The facts that the row of a call and the entry about it share.
    fn call(&mut self, call: [Option<String>; 7], entry: &str) {
        let [tool, of_tool, tenant, of_tenant, user, server, digest] = call;
        self.entered("tool", tool, of_tool);
        self.entered("tenant", tenant, of_tenant);
        self.entered("user", user, field(entry, "user"));
        self.entered("server", server, field(entry, "server"));
        self.entered("definition", digest, field(entry, "tool_digest"));
    }

    fn found(self) -> Option<Vec<&'static str>> {
        Some(self.0).filter(|differs| !differs.is_empty())
    }
}
