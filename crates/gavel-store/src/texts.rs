//! What models were asked with: definitions, toolsets, and what was said before. Each text is kept once, by its hash.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::config::ContentMode;
use super::db::{Conn, values};
use super::error::Fault;
use super::op::{Op, Ticket};
use super::queue::Batch;
use super::table::Insert;
use crate::domain::canonical::{self, hash};
use crate::domain::definition::Definition;
use crate::domain::ids::TenantId;
use crate::ports::records::{Asked, History};

/// The most texts of which a process knows that they are kept. With more it begins to learn them again.
const MOST_KNOWN: usize = 16_384;

const DAY_US: i64 = 24 * 3600 * 1_000_000;

/// Tenant, user, hash. Words are kept for each user alone, so that they can be erased; what all are asked with has no user.
pub(super) type Key = (TenantId, Arc<str>, Arc<str>);

/// A text of a tenant.
pub(super) struct Text {
    kind: &'static str,
    /// Absent if the content mode does not keep it.
    body: Option<Arc<str>>,
    bytes: usize,
    /// The day that it was used on, counted from 1970.
    day: i64,
}

static KEEP: LazyLock<Insert> = LazyLock::new(|| {
    let columns = "tenant, user_id, hash, kind, body, bytes, first_seen, last_seen_day";
    Insert::new(
        &format!("INSERT INTO content_blob ({columns})"),
        "(?, ?, ?, ?, ?, ?, @now, ?)",
        "ON CONFLICT (tenant, user_id, hash) DO UPDATE SET last_seen_day = excluded.last_seen_day \
         WHERE content_blob.last_seen_day < excluded.last_seen_day",
    )
});

/// The texts that are known to be kept, and to be in use today: nearly every decision uses no other.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<(i64, HashSet<Key>)>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, (i64, HashSet<Key>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, day: i64, key: &Key) -> bool {
        let (of, known) = &*self.lock();
        *of == day && known.contains(key)
    }

    /// Learns what was committed.
    pub(super) fn add(&self, texts: BTreeMap<Key, Text>) {
        let Some(day) = texts.values().map(|text| text.day).max() else {
            return;
        };
        let mut known = self.lock();
        if known.0 != day || known.1.len() > MOST_KNOWN {
            *known = (day, HashSet::new());
        }
        known.1.extend(texts.into_keys());
    }
}

/// Where a text comes from.
enum Source<'a> {
    Definition(&'a Definition),
    Text(Cow<'a, str>),
    /// The content mode does not keep it.
    Hidden(usize),
}

impl Source<'_> {
    fn used_on(self, day: i64, kind: &'static str) -> Text {
        let body: Arc<str> = match self {
            Self::Definition(definition) => canonical::to_raw(&definition.to_json()).get().into(),
            Self::Text(text) => (*text).into(),
            Self::Hidden(bytes) => {
                let body = None;
                return Text { kind, body, bytes, day };
            }
        };
        let (bytes, body) = (body.len(), Some(body));
        Text { kind, body, bytes, day }
    }
}

impl ContentMode {
    /// A hash, keyed where content is hashed.
    fn hash(&self, text: &str) -> Arc<str> {
        match self {
            Self::Hash(key) => key.digest(text.as_bytes()).into(),
            Self::Full | Self::None => hash(text),
        }
    }

    /// What was said before as the log keeps it: the hash of the text, the text (a list of role and hash of each message),
    /// and these hashes. `None` if there was nothing, or if no content is kept.
    fn said(&self, history: &History) -> Option<(Arc<str>, String, Vec<Arc<str>>)> {
        if history.is_empty() || matches!(self, Self::None) {
            return None;
        }
        let hashes: Vec<_> = history.iter().map(|(_, message)| self.hash(message)).collect();
        let said = history.iter().zip(&hashes);
        let said = Value::from_iter(said.map(|((speaker, _), hash)| json!([speaker, hash]))).to_string();
        Some((hash(&said), said, hashes))
    }

    /// The hash of what was said before.
    pub(super) fn history_hash(&self, history: &History) -> Option<Arc<str>> {
        self.said(history).map(|(hash, ..)| hash)
    }

    /// Each text of what a model was asked with: its hash, what it is, where it comes from.
    fn texts<'a>(&self, asked: &'a Asked) -> Vec<(Arc<str>, &'static str, Source<'a>)> {
        let Asked {
            definition,
            toolset,
            history,
        } = asked;
        let mut texts = vec![
            (
                Arc::clone(&definition.hash),
                "definition",
                Source::Definition(definition),
            ),
            (
                Arc::clone(&toolset.hash),
                "toolset",
                Source::Text((&*toolset.text).into()),
            ),
        ];
        if let Some((hash, said, hashes)) = self.said(history) {
            texts.push((hash, "history", Source::Text(said.into())));
            texts.extend(history.iter().zip(hashes).map(|((_, message), hash)| {
                let source = match self {
                    Self::Full => Source::Text(message.into()),
                    Self::Hash(_) | Self::None => Source::Hidden(message.len()),
                };
                (hash, "message", source)
            }));
        }
        texts
    }
}

impl Batch<'_> {
    /// The texts of all decisions that are closed, but for those that are kept already. In the order of their keys, in
    /// which every writer writes them, so that no two of them wait for each other.
    pub(super) fn new_texts(&self, tickets: &[Ticket]) -> BTreeMap<Key, Text> {
        let mut texts = BTreeMap::new();
        for ticket in tickets {
            if let Op::Commit(commit) = &ticket.op
                && let Some(closed) = commit.closed()
                && let Some(asked) = &closed.asked
            {
                let day = closed.closed_at.div_euclid(DAY_US);
                for (hash, kind, source) in self.writing.content.texts(asked) {
                    let user = match kind {
                        "message" | "history" => closed.open.user.as_str(),
                        _ => "",
                    };
                    let key = (closed.open.tenant.clone(), user.into(), hash);
                    if !self.known.has(day, &key) {
                        texts.entry(key).or_insert_with(|| source.used_on(day, kind));
                    }
                }
            }
        }
        texts
    }

    /// Keeps new texts.
    pub(super) async fn keep_texts(&self, conn: &mut Conn, texts: &BTreeMap<Key, Text>) -> Result<(), Fault> {
        let values = texts.iter().flat_map(|((tenant, user, hash), text)| {
            let bytes = text.bytes as u64;
            values![
                tenant.as_str(),
                user,
                hash,
                text.kind,
                text.body.as_ref(),
                bytes,
                text.day
            ]
        });
        KEEP.run(conn, values.collect()).await?;
        Ok(())
    }
}
