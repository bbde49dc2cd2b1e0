//! Appends the audit entries of a transaction to the chain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::super::db::{Conn, Value, storable};
use super::super::error::Fault;
use super::super::insert::Insert;
use super::chain::FORMAT;
use super::columns::AUDIT;
use super::entry::{Entry, Whose};
use super::{AuditRow, Signer};
use crate::queue::Batch;

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
                subject: entry.subject.clone(),
                kind: entry.kind.as_str().to_owned(),
            })
        });
        let mut values = Vec::with_capacity(entries.len() * 14);
        for entry in entries {
            number += 1;
            let mut row = audited(entry, &owners, signer);
            (row.number, row.at, row.previous_hash) = (number, at, hash);
            row.hash = signer.sign(&row);
            hash = row.hash.clone();
            values.extend(AUDIT.begin(&row, self.writing));
        }
        // A trigger moves the head along.
        ENTER.run(conn, values).await?;
        Ok(())
    }

    /// The existing entries of these subjects.
    async fn known(&self, conn: &mut Conn, entries: &[Entry]) -> Result<BTreeSet<Known>, Fault> {
        let subjects: BTreeSet<_> = entries.iter().map(|entry| entry.subject.as_str()).collect();
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
        let decisions: BTreeSet<_> = unknown.filter_map(|entry| entry.decision.as_deref()).collect();
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
