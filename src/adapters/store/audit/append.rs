//! Appends the audit entries of a transaction to the chain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::super::batch::Batch;
use super::super::db::{Conn, Value, storable};
use super::super::error::Fault;
use super::chain::FORMAT;
use super::entry::{Entry, Whose};
use super::statements::MANY;
use super::{AuditRow, Signer};

impl Batch<'_> {
    /// Adds an entry in the open transaction. It gets its place in the chain at the end of the transaction.
    pub(in super::super) fn audit(&self, entry: Entry) {
        self.trail.push(entry);
    }

    /// Appends the entries of this transaction to the chain. Must be the last step before COMMIT: all other writers
    /// with entries wait for the head until then.
    pub(in super::super) async fn write_trail(&self, conn: &mut Conn) -> Result<(), Fault> {
        let mut entries = self.trail.take();
        if entries.is_empty() {
            return Ok(());
        }
        let signer = self
            .signer
            .ok_or_else(|| Fault::Unavailable("the audit key is not loaded".into()))?;
        let owners = self.owners(conn, &entries).await?;
        let texts = &self.statements.audit;
        let head = conn.first(&texts.head, vec![]).await?;
        let head = head.ok_or_else(|| Fault::Refused("audit_head has lost its row".into()))?;
        let (mut number, mut hash, at) = (head.int(0)?, head.text(1)?, head.int(2)?);
        // Under the lock, so that of two transactions with the same event the second sees the entry of the first.
        let mut known = self.known(conn, &entries).await?;
        entries.retain(|entry| known.insert((entry.subject.clone(), entry.kind.as_str().to_owned())));
        let mut values = Vec::with_capacity(entries.len() * 14);
        for entry in entries {
            number += 1;
            let mut row = audited(entry, &owners, signer);
            (row.number, row.at, row.previous_hash) = (number, at, hash);
            row.hash = signer.sign(&row);
            hash = row.hash.clone();
            values.extend(columns(&row));
        }
        texts.enter.run(conn, values).await?;
        Ok(())
    }

    /// The existing entries of these subjects.
    async fn known(&self, conn: &mut Conn, entries: &[Entry]) -> Result<BTreeSet<(String, String)>, Fault> {
        let mut known = BTreeSet::new();
        let subjects: BTreeSet<_> = entries.iter().map(|entry| entry.subject.as_str()).collect();
        for subjects in many(subjects) {
            conn.fetch(&self.statements.audit.known, subjects, &mut |row| {
                known.insert((row.text(0)?, row.text(1)?));
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        }
        Ok(known)
    }

    /// The owners of the decisions of entries that do not name one.
    async fn owners(&self, conn: &mut Conn, entries: &[Entry]) -> Result<BTreeMap<String, Whose>, Fault> {
        let mut owners = BTreeMap::new();
        let unknown = entries.iter().filter(|entry| entry.whose.is_none());
        let decisions: BTreeSet<_> = unknown.filter_map(|entry| entry.decision.as_deref()).collect();
        for decisions in many(decisions) {
            conn.fetch(&self.statements.audit.whose, decisions, &mut |row| {
                let whose = Whose {
                    surface: Some(row.text(3)?),
                    ..Whose::new(&row.text(1)?, &row.text(2)?)
                };
                owners.insert(row.text(0)?, whose);
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        }
        Ok(owners)
    }
}

/// The row of an entry, without its place in the chain.
fn audited(entry: Entry, owners: &BTreeMap<String, Whose>, signer: &Signer) -> AuditRow {
    let known = entry.whose.as_ref().or_else(|| owners.get(entry.decision.as_ref()?));
    // The decision was deleted by an operator, so its owner is unknown; the event is still entered.
    let gone = Whose::new("", "");
    let whose = known.unwrap_or(&gone);
    AuditRow {
        number: 0,
        format: FORMAT,
        at: 0,
        kind: entry.kind.as_str().to_owned(),
        detail: kept(entry.detail(whose)),
        actor: kept(entry.actor.unwrap_or_else(|| whose.user.clone())),
        tenant: kept(whose.tenant.clone()),
        subject: kept(entry.subject),
        decision_id: entry.decision.map(kept),
        action_id: entry.action.map(kept),
        tool: entry.tool.map(kept),
        key_id: signer.id().to_owned(),
        previous_hash: String::new(),
        hash: String::new(),
    }
}

/// The text as the database can store it, so that the stored text is what is hashed.
fn kept(text: String) -> String {
    storable(&text).unwrap_or(text)
}

fn columns(row: &AuditRow) -> [Value; 14] {
    let opt = |text: &Option<String>| text.as_deref().map_or(Value::Text(None), Value::text);
    let int = |int| Value::Int(Some(int));
    [
        int(row.number),
        int(row.format),
        int(row.at),
        Value::text(&row.kind),
        Value::text(&row.subject),
        Value::text(&row.tenant),
        Value::text(&row.actor),
        opt(&row.decision_id),
        opt(&row.action_id),
        opt(&row.tool),
        Value::text(&row.detail),
        Value::text(&row.key_id),
        Value::text(&row.previous_hash),
        Value::text(&row.hash),
    ]
}

/// Texts in groups of [`MANY`]; the last group is filled up with its last text.
fn many(texts: BTreeSet<&str>) -> Vec<Vec<Value>> {
    let values: Vec<_> = texts.into_iter().map(Value::text).collect();
    let mut groups: Vec<_> = values.chunks(MANY).map(<[Value]>::to_vec).collect();
    for group in &mut groups {
        if let Some(last) = group.last().cloned() {
            group.resize(MANY, last);
        }
    }
    groups
}
