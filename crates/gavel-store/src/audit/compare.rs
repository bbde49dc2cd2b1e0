//! Compares other tables with the audit log: side effects, approval requests and their resolutions, grants.
//!
//! Each statement reads a page of a table, and for each row the matching audit entries.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::super::db::{Conn, Value, sql, values};
use super::super::error::StoreError;
use super::PAGE;
use super::field;
use super::verify::{Finding, Verifier};

/// Compares everything.
pub(super) async fn all(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    effects(conn, verifier).await?;
    questions(conn, verifier).await?;
    grants(conn, verifier).await
}

/// Passes each row of a statement to `take`, page by page. A page begins after the place that `take` returned last.
async fn each<T: DeserializeOwned + Send>(
    conn: &mut Conn,
    sql: &'static str,
    mut after: Vec<Value>,
    mut take: impl FnMut(T) -> Vec<Value>,
) -> Result<(), StoreError> {
    loop {
        let page: Vec<T> = conn.all(sql, after.clone()).await?;
        let read = page.len();
        for row in page {
            after = take(row);
        }
        if read < PAGE {
            return Ok(());
        }
    }
}

/// What the row of a call and the entry about it share.
#[derive(Deserialize)]
struct Call {
    tool: Option<String>,
    entered_tool: Option<String>,
    tenant: Option<String>,
    entered_tenant: Option<String>,
    user: Option<String>,
    server: Option<String>,
    digest: Option<String>,
    arguments: Option<String>,
}

/// The columns of a [`Call`] in the row `of`, whose entry is the row `entry`.
fn call(of: &str, entry: &str) -> String {
    format!(
        "@text({of}.tool) AS \"call.tool\", @text({entry}.tool) AS \"call.entered_tool\", \
         @text({of}.tenant) AS \"call.tenant\", @text({entry}.tenant) AS \"call.entered_tenant\", \
         @text({of}.user_id) AS \"call.user\", @text({of}.server) AS \"call.server\", \
         @text({of}.tool_digest) AS \"call.digest\", @text({of}.arguments) AS \"call.arguments\""
    )
}

/// Side effects of the tool-call log.
async fn effects(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct Effect {
        decision_id: String,
        sequence: i64,
        id: String,
        status: String,
        side_effect: bool,
        /// Whether an entry is needed, or there is one.
        matters: bool,
        is_entered: bool,
        has_outcome: bool,
        call: Call,
        entry: Option<String>,
        entered_texts: Option<String>,
    }
    let sql = sql!(
        "SELECT t.decision_id, t.sequence, t.id, t.status, t.side_effect, \
         i.subject IS NOT NULL OR (t.side_effect AND t.started_at IS NOT NULL) AS matters, \
         EXISTS (SELECT 1 FROM audit a WHERE a.subject = t.id) AS is_entered, \
         CASE t.status WHEN 'started' THEN NOT {} WHEN 'not_sent' THEN NOT {} ELSE {} END AS has_outcome, {}, \
         @text(i.detail) AS entry, @text(i.texts) AS entered_texts \
         FROM (SELECT * FROM tool_invocation_log WHERE (decision_id, sequence) > ($1, $2) \
         ORDER BY decision_id, sequence LIMIT {PAGE}) t \
         LEFT JOIN audit i ON i.subject = t.id AND i.kind = 'effect_intended' ORDER BY t.decision_id, t.sequence",
        entered(
            "t",
            &["effect_completed", "effect_failed", "effect_in_doubt", "doubt_settled"]
        ),
        entered("t", &["effect_completed", "effect_in_doubt", "doubt_settled"]),
        entered_end("t"),
        call("t", "i")
    );
    each(conn, sql, values!["", 0_i64], |effect: Effect| {
        let (decision_id, action_id, status) = (effect.decision_id, effect.id, effect.status);
        let place = values![&decision_id, effect.sequence];
        if effect.matters {
            if !effect.is_entered {
                verifier.find(Finding::NotEntered {
                    decision_id,
                    action_id,
                    status,
                });
            } else if !effect.has_outcome {
                verifier.find(Finding::OutcomeMismatch {
                    decision_id,
                    action_id,
                    status,
                });
            } else if let Some(entry) = effect.entry {
                let mut differs = Differs::default();
                // Both rows were written in the same transaction, with the same `records.content`, and their texts are
                // erased in one.
                let arguments = effect.call.arguments.clone();
                differs.call(effect.call, &entry);
                differs.entered(
                    "arguments",
                    arguments,
                    effect.entered_texts.and_then(|texts| field(&texts, "arguments")),
                );
                differs.unless("side-effect flag", effect.side_effect);
                if let Some(differs) = differs.found() {
                    verifier.find(Finding::EffectDiffers {
                        decision_id,
                        action_id,
                        differs,
                    });
                }
            }
        }
        place
    })
    .await
}

/// An approval request, as the console and the surfaces show it, with its entry and that of its resolution.
#[derive(Deserialize)]
struct Question {
    id: String,
    was_requested: bool,
    has_outcome: bool,
    call: Call,
    details: Option<String>,
    requested: Option<String>,
    resolution: Option<String>,
    resolved: Option<String>,
    resolved_by: Option<String>,
    entered_by: Option<String>,
}

/// Approval requests and resolutions.
async fn questions(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    let sql = sql!(
        "SELECT q.id, a.subject IS NOT NULL AS was_requested, \
         CASE WHEN NOT {} THEN NOT q.side_effect OR q.status NOT IN ('executing', 'completed', 'in_doubt') \
         WHEN NOT q.side_effect THEN {NEVER} WHEN q.status = 'executing' THEN NOT {} ELSE {} END AS has_outcome, {}, \
         @text(q.details) AS details, @text(a.detail) AS requested, @text(q.resolution) AS resolution, \
         @text(r.detail) AS resolved, @text(q.resolved_by) AS resolved_by, @text(r.actor) AS entered_by \
         FROM agent_action q LEFT JOIN audit a ON a.subject = q.id AND a.kind = 'approval_requested' \
         LEFT JOIN audit r ON r.subject = q.id AND r.kind = 'approval_resolved' \
         WHERE q.approval_id IS NOT NULL AND q.id > $1 ORDER BY q.id LIMIT {PAGE}",
        entered("q", &["effect_intended"]),
        entered(
            "q",
            &["effect_completed", "effect_failed", "effect_in_doubt", "doubt_settled"]
        ),
        entered_end("q"),
        call("q", "a")
    );
    each(conn, sql, values![""], |question: Question| {
        let action_id = question.id.clone();
        let place = values![&action_id];
        if let Some(differs) = approval_differs(question) {
            verifier.find(Finding::ApprovalDiffers { action_id, differs });
        }
        place
    })
    .await
}

/// The facts in which an approval request, or its resolution, and their entries differ.
fn approval_differs(question: Question) -> Option<Vec<&'static str>> {
    let mut differs = Differs::default();
    differs.unless("whether approval was requested", question.was_requested);
    if let Some(requested) = question.requested {
        let hash = |text: String| hex::encode(Sha256::digest(text));
        let arguments = question.call.arguments.clone().map(hash);
        differs.call(question.call, &requested);
        differs.entered("arguments", arguments, field(&requested, "arguments_sha256"));
        let details = question.details.map(hash);
        differs.entered("details shown", details, field(&requested, "question_sha256"));
    }
    let entered = question.resolved.and_then(|detail| field(&detail, "decision"));
    differs.unless("resolution", question.resolution == entered);
    differs.unless("approver", question.resolved_by == question.entered_by);
    differs.unless("outcome", question.has_outcome);
    differs.found()
}

/// Grants that are not revoked. Recipients that were stored as a keyed hash cannot be compared.
async fn grants(conn: &mut Conn, verifier: &mut Verifier) -> Result<(), StoreError> {
    #[derive(Deserialize)]
    struct Grant {
        id: String,
        was_revoked: bool,
        user: Option<String>,
        server: Option<String>,
        digest: Option<String>,
        recipients: Option<String>,
        tool: Option<String>,
        entered_tool: Option<String>,
        entry: Option<String>,
        texts: Option<String>,
        tenant: Option<String>,
        entered_tenant: Option<String>,
        by: Option<String>,
        entered_by: Option<String>,
    }
    let sql = sql!(
        "SELECT g.id, @text(g.user_id) AS \"user\", @text(g.server) AS server, @text(g.tool_digest) AS digest, \
         @text(g.recipients) AS recipients, @text(g.tool) AS tool, @text(a.tool) AS entered_tool, \
         @text(a.detail) AS entry, @text(a.texts) AS texts, @text(g.tenant) AS tenant, \
         @text(a.tenant) AS entered_tenant, @text(g.created_by) AS \"by\", @text(a.actor) AS entered_by, \
         EXISTS (SELECT 1 FROM audit r WHERE r.subject = g.id AND r.kind = 'grant_revoked') AS was_revoked \
         FROM approval_grant g LEFT JOIN audit a ON a.subject = g.id AND a.kind = 'grant_created' \
         WHERE g.revoked_at IS NULL AND g.id > $1 ORDER BY g.id LIMIT {PAGE}"
    );
    each(conn, sql, values![""], |grant: Grant| {
        let entry = grant.entry.unwrap_or_default();
        let entered = grant
            .texts
            .and_then(|texts| field(&texts, "recipients"))
            .filter(|entered| entered.starts_with('{'));
        let same = grant.tool == grant.entered_tool
            && grant.tenant == grant.entered_tenant
            && grant.by == grant.entered_by
            && grant.user == field(&entry, "user")
            && grant.server == field(&entry, "server")
            && grant.digest == field(&entry, "tool_digest")
            && (entered.is_none() || entered == grant.recipients)
            && !grant.was_revoked;
        let place = values![&grant.id];
        if !same {
            let grant_id = grant.id;
            verifier.find(Finding::GrantUnrecorded { grant_id });
        }
        place
    })
    .await
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
    fn call(&mut self, call: Call, entry: &str) {
        self.entered("tool", call.tool, call.entered_tool);
        self.entered("tenant", call.tenant, call.entered_tenant);
        self.entered("user", call.user, field(entry, "user"));
        self.entered("server", call.server, field(entry, "server"));
        self.entered("definition", call.digest, field(entry, "tool_digest"));
    }

    fn found(self) -> Option<Vec<&'static str>> {
        Some(self.0).filter(|differs| !differs.is_empty())
    }
}
