//! The audit log: every action with its actor. The database rejects changes of its rows, and a chain of HMACs
//! links them, so that a change by other means is detected.
//!
//! An [`Entry`] describes an event. The ops of a batch add their entries to its [`Trail`], which is added to the chain as
//! the last step of their transaction: an event and its entry are committed together, or neither is. All writers
//! contend for the head of the chain. So it is locked last, and no writer waits for anything else while it holds the
//! lock. A transaction without entries does not touch it.
//!
//! `chain` defines what is hashed and with which key, `keys` where the key comes from. `verify` checks the chain
//! without trusting it and lists each finding, `compare` checks it against other tables, and `log` provides read-only access.
//! `triggers` makes the database reject changes, and detects when it no longer does.

mod chain;
mod compare;
mod keys;
mod log;
mod triggers;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use chain::FORMAT;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use self::chain::Head;
use super::config::{ContentMode, capped};
use super::db::{Conn, Value, storable};
use super::error::Fault;
use super::table::{Column, Insert, Table};
use crate::domain::canonical;
use crate::domain::names::names;
use crate::domain::tool::FailureCode;
use crate::ports::records::{ClosedCall, OpenCall, OpenDecision};
use crate::queue::Batch;
pub use chain::AuditRow;
pub(super) use chain::Signer;
pub(super) use keys::signer;
pub use keys::{AuditSecrets, KEY_IN_DATABASE, KeyPlace};
pub(super) use log::proof;
pub use log::{AuditFilter, AuditKeys, AuditLog};
pub(super) use triggers::restore as restore_triggers;
pub use triggers::{TriggerDamage, TriggerState};
pub use verify::{Finding, Verifier};

/// The entries of a transaction, in order.
#[derive(Default)]
pub(super) struct Trail(Mutex<Vec<Entry>>);

impl Trail {
    fn push(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a transaction: discards entries of an earlier one.
    pub(crate) fn begin(&self) {
        self.take();
    }
}

/// Rows of a page: few enough that no page takes long or much memory.
const PAGE: usize = 500;

type Audit = Column<AuditRow>;

#[rustfmt::skip] // A line for each.
pub(super) static AUDIT: Table<AuditRow> = Table { name: "audit", columns: &[
    Audit::open("number", |row, _| row.number.into()).shown(),
    Audit::open("format", |row, _| row.format.into()).shown(),
    Audit::open("at", |row, _| row.at.into()).shown(),
    Audit::open("kind", |row, _| (&row.kind).into()).shown(),
    Audit::open("subject", |row, _| (&row.subject).into()).shown(),
    Audit::open("tenant", |row, _| (&row.tenant).into()).shown(),
    Audit::open("actor", |row, _| (&row.actor).into()).shown(),
    Audit::open("decision_id", |row, _| row.decision_id.as_ref().into()).shown(),
    Audit::open("action_id", |row, _| row.action_id.as_ref().into()).shown(),
    Audit::open("tool", |row, _| row.tool.as_ref().into()).shown(),
    Audit::open("detail", |row, _| (&row.detail).into()).shown(),
    Audit::open("texts", |row, _| row.texts.as_ref().into()).shown().content(),
    Audit::open("key_id", |row, _| (&row.key_id).into()).shown(),
    Audit::open("previous_hash", |row, _| (&row.previous_hash).into()).shown(),
    Audit::open("hash", |row, _| (&row.hash).into()).shown(),
] };

/// The columns as they are read. A value that gavel never writes must be detected, and must not end the reading.
fn columns() -> String {
    let columns = AUDIT.names().map(|name| match name {
        "number" | "format" | "at" => format!("@whole({name}) AS {name}"),
        "decision_id" | "action_id" | "tool" | "texts" => format!("@text({name}) AS {name}"),
        _ => format!("COALESCE(@text({name}), '') AS {name}"),
    });
    columns.collect::<Vec<_>>().join(", ")
}

static ENTER: LazyLock<Insert> = LazyLock::new(|| AUDIT.inserts(""));

/// The head of the chain, and the time.
#[derive(Deserialize)]
struct Locked {
    number: i64,
    hash: String,
    at: i64,
}

/// An entry that exists.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    subject: String,
    kind: String,
}

impl Batch<'_> {
    /// Adds an entry in the open transaction. It gets its place in the chain at the end of the transaction.
    pub(crate) fn audit(&self, entry: Entry) {
        self.trail.push(entry);
    }

    /// Appends the entries of this transaction to the chain. Must be the last step before COMMIT: all other writers
    /// with entries wait for the head until then.
    pub(crate) async fn write_trail(&self, conn: &mut Conn) -> Result<(), Fault> {
        let mut entries = self.trail.take();
        if entries.is_empty() {
            return Ok(());
        }
        let signer = self
            .signer
            .ok_or_else(|| Fault::Unavailable("the audit key is not loaded".into()))?;
        let owners = self.owners(conn, &entries).await?;
        // Locks the chain until this transaction ends.
        let head = "SELECT number, hash, @now AS at FROM audit_head WHERE id = 1 @postgres(FOR UPDATE)";
        let head: Option<Locked> = conn.one(head, vec![]).await?;
        let head = head.ok_or_else(|| Fault::Refused("audit_head has lost its row".into()))?;
        let Locked {
            mut number,
            mut hash,
            at,
        } = head;
        // Under the lock, so that of two transactions with the same event the second sees the entry of the first.
        let mut known = self.known(conn, &entries).await?;
        entries.retain(|entry| {
            known.insert(Known {
                subject: entry.row.subject.clone(),
                kind: entry.row.kind.clone(),
            })
        });
        let mut values = Vec::with_capacity(entries.len() * AUDIT.names().count());
        for entry in entries {
            number += 1;
            let mut row = audited(entry, &owners, signer);
            (row.number, row.at, row.previous_hash) = (number, at, hash);
            let texts = row.texts.take();
            row.hash = signer.sign(&row);
            row.texts = texts;
            hash = row.hash.clone();
            values.extend(AUDIT.begin(&row, self.writing));
        }
        // A trigger moves the head along.
        ENTER.run(conn, values).await?;
        Ok(())
    }

    /// The existing entries of these subjects.
    async fn known(&self, conn: &mut Conn, entries: &[Entry]) -> Result<BTreeSet<Known>, Fault> {
        let subjects: BTreeSet<_> = entries.iter().map(|entry| entry.row.subject.as_str()).collect();
        let known = "SELECT subject, kind FROM audit WHERE subject @in($1)";
        Ok(conn
            .all(known, vec![Value::list(subjects)])
            .await?
            .into_iter()
            .collect())
    }

    /// The owners of the decisions of entries that do not name one.
    async fn owners(&self, conn: &mut Conn, entries: &[Entry]) -> Result<BTreeMap<String, Whose>, Fault> {
        #[derive(Deserialize)]
        struct Owner {
            id: String,
            #[serde(flatten)]
            whose: Whose,
        }
        let unknown = entries.iter().filter(|entry| entry.whose.is_none());
        let decisions: BTreeSet<_> = unknown.filter_map(|entry| entry.row.decision_id.as_deref()).collect();
        if decisions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let owners = "SELECT id, tenant, user_id AS \"user\", surface FROM decision_log WHERE id @in($1)";
        let owners: Vec<Owner> = conn.all(owners, vec![Value::list(decisions)]).await?;
        Ok(owners.into_iter().map(|owner| (owner.id, owner.whose)).collect())
    }
}

/// The row of an entry, without its place in the chain.
fn audited(entry: Entry, owners: &BTreeMap<String, Whose>, signer: &Signer) -> AuditRow {
    let mut row = entry.row;
    let known = entry.whose.as_ref().or_else(|| owners.get(row.decision_id.as_ref()?));
    // The decision was deleted by an operator, so its owner is unknown; the event is still entered.
    let gone = Whose::new("", "");
    let whose = known.unwrap_or(&gone);
    let mut detail = entry.detail;
    detail.insert("user".to_owned(), json!(whose.user));
    if let Some(surface) = &whose.surface {
        detail.insert("surface".to_owned(), json!(surface));
    }
    let mut texts = entry.texts;
    if !texts.is_empty() {
        // Without it, a reader who guesses an erased text could make sure.
        texts.insert("salt".to_owned(), json!(Uuid::new_v4()));
        let texts = row.texts.insert(Json::Object(texts).to_string());
        if let Some(stored) = storable(texts) {
            *texts = stored;
        }
        detail.insert(TEXTS.to_owned(), json!(canonical::hash(texts)));
    }
    row.detail = Json::Object(detail).to_string();
    row.tenant.clone_from(&whose.tenant);
    if row.actor.is_empty() {
        row.actor.clone_from(&whose.user);
    }
    signer.id().clone_into(&mut row.key_id);
    let texts = [&mut row.subject, &mut row.tenant, &mut row.actor, &mut row.detail];
    let others = [&mut row.decision_id, &mut row.action_id, &mut row.tool];
    for text in texts.into_iter().chain(others.into_iter().flatten()) {
        // As the database can store it, so that the stored text is what is hashed.
        if let Some(stored) = storable(text) {
            *text = stored;
        }
    }
    row
}

names! {
    /// What happened.
    AuditKind {
        /// A tool call with side effects is about to be sent.
        EffectIntended = "effect_intended",
        /// The tool call succeeded.
        EffectCompleted = "effect_completed",
        /// The tool call failed, or was not sent.
        EffectFailed = "effect_failed",
        /// The tool call was sent, and its outcome is unknown.
        EffectInDoubt = "effect_in_doubt",
        /// An approval was requested.
        ApprovalRequested = "approval_requested",
        /// An approver resolved the request.
        ApprovalResolved = "approval_resolved",
        /// The approval request expired, or its run ended first.
        ApprovalExpired = "approval_expired",
        /// A grant was created.
        GrantCreated = "grant_created",
        /// A grant was revoked.
        GrantRevoked = "grant_revoked",
        /// A user settled whether an in-doubt action had happened.
        DoubtSettled = "doubt_settled",
        /// An agent definition was uploaded.
        DefinitionPut = "definition_put",
        /// The cancellation of a run was requested.
        RunCancelled = "run_cancelled",
        /// A person confirmed a version of a planning session's plan.
        PlanConfirmed = "plan_confirmed",
        /// A planning session was cancelled.
        SessionCancelled = "session_cancelled",
        /// A planning session ended in another way.
        SessionEnded = "session_ended",
        /// Rows of a log were exported.
        Exported = "exported",
        /// The texts of a user were erased.
        ContentErased = "content_erased",
        /// gavel restored a trigger that keeps the audit append-only.
        TriggerRestored = "trigger_restored",
    }
}

/// The field in the detail of an entry with the hex SHA-256 of its texts.
const TEXTS: &str = "texts_sha256";

/// A string field in the detail of an entry, or in its texts.
pub(super) fn field(detail: &str, name: &str) -> Option<String> {
    let detail: Json = serde_json::from_str(detail).ok()?;
    detail.get(name)?.as_str().map(str::to_owned)
}

/// The user on whose behalf gavel acted, and the surface.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Whose {
    tenant: String,
    user: String,
    /// `None` if no surface was involved.
    surface: Option<String>,
}

impl Whose {
    pub(crate) fn new(tenant: &str, user: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            user: user.to_owned(),
            surface: None,
        }
    }

    fn of(decision: &OpenDecision) -> Self {
        Self {
            surface: Some(decision.surface.to_owned()),
            ..Self::new(decision.tenant.as_str(), decision.user.as_str())
        }
    }
}

/// One audit entry, before it has a place in the chain.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Without an actor it is the user's.
    row: AuditRow,
    /// If unknown here, it is read from the decision.
    whose: Option<Whose>,
    detail: Map<String, Json>,
    texts: Map<String, Json>,
}

impl Entry {
    pub(crate) fn new(kind: AuditKind, subject: impl ToString) -> Self {
        Self {
            row: AuditRow {
                format: FORMAT,
                kind: kind.to_string(),
                subject: subject.to_string(),
                ..AuditRow::default()
            },
            whose: None,
            detail: Map::new(),
            texts: Map::new(),
        }
    }

    /// An entry about a tool call.
    pub(crate) fn of_action(kind: AuditKind, action: impl ToString, decision: impl ToString, tool: &str) -> Self {
        let mut entry = Self::new(kind, action).decision(decision).tool(tool);
        entry.row.action_id = Some(entry.row.subject.clone());
        entry
    }

    pub(crate) fn by(mut self, actor: &str) -> Self {
        actor.clone_into(&mut self.row.actor);
        self
    }

    pub(crate) fn for_(mut self, whose: Whose) -> Self {
        self.whose = Some(whose);
        self
    }

    pub(crate) fn decision(mut self, decision: impl ToString) -> Self {
        self.row.decision_id = Some(decision.to_string());
        self
    }

    pub(crate) fn action(mut self, action: impl ToString) -> Self {
        self.row.action_id = Some(action.to_string());
        self
    }

    pub(crate) fn tool(mut self, tool: &str) -> Self {
        self.row.tool = Some(capped(tool).to_owned());
        self
    }

    pub(crate) fn with(mut self, field: &str, value: impl Into<Json>) -> Self {
        self.detail.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a field, if it has a value.
    pub(crate) fn with_any(self, field: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }

    /// Adds text written by users, reduced according to the content mode.
    pub(crate) fn with_content(mut self, field: &str, content: &ContentMode, text: &str) -> Self {
        if let Value::Text(Some(kept)) = content.text(text) {
            self.texts.insert(field.to_owned(), json!(kept));
        }
        self
    }

    /// Adds arguments, reduced according to the content mode, and always their hash.
    pub(crate) fn with_arguments(mut self, content: &ContentMode, arguments: &RawValue) -> Self {
        if let Value::Text(Some(kept)) = content.json(arguments) {
            // As text, so that large numbers are not rounded by JSON readers.
            self.texts.insert("arguments".to_owned(), json!(kept));
        }
        self.with("arguments_sha256", hex::encode(Sha256::digest(arguments.get())))
    }

    pub(crate) fn with_tool(self, server: &str, digest: &str) -> Self {
        self.with("server", server).with("tool_digest", digest)
    }

    /// A side effect that is about to be sent; `None` for a read-only call.
    pub(crate) fn intended(call: &OpenCall, decision: Option<&OpenDecision>, content: &ContentMode) -> Option<Self> {
        let tool = call.tool.as_ref().filter(|tool| tool.side_effect)?;
        let mut entry = Self::of_action(AuditKind::EffectIntended, call.id, call.decision, &tool.name)
            .with_tool(&tool.server, &tool.digest)
            .with_arguments(content, &call.arguments)
            .with("idempotency_key", call.idempotency_key.as_deref());
        entry.whose = decision.map(Whose::of);
        Some(entry)
    }

    /// The outcome of a side effect that was sent; `None` for a read-only call or one that was not sent.
    pub(crate) fn ended(call: &ClosedCall, decision: &OpenDecision) -> Option<Self> {
        let tool = call.open.tool.as_ref().filter(|tool| tool.side_effect)?;
        call.started_at?;
        let code = call.outcome.as_ref().err().map(|failure| failure.code);
        let entry = Self::outcome(call.open.id, decision.id, &tool.name, code);
        Some(entry.for_(Whose::of(decision)))
    }

    /// The outcome of a side effect: success, or an error code.
    pub(crate) fn outcome(
        action: impl ToString,
        decision: impl ToString,
        tool: &str,
        code: Option<FailureCode>,
    ) -> Self {
        let kind = match code {
            None => AuditKind::EffectCompleted,
            Some(FailureCode::InDoubt) => AuditKind::EffectInDoubt,
            Some(_) => AuditKind::EffectFailed,
        };
        Self::of_action(kind, action, decision, tool).with_any("error_code", code.map(FailureCode::as_str))
    }
}
