//! The configuration of the store, with the content mode: how much of the users' text a row keeps.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::audit::AuditSecrets;
use super::db::Value;
use super::migrate::PATIENCE;
use crate::domain::budget::SessionLimits;
use crate::domain::ids::InstanceId;
use crate::domain::tool::{FailureCode, Wording};

/// Timeout of a query on the records.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(10);

/// The settings of a store. [`StoreConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `sqlite:PATH`, `postgres://…`; may contain a password, so it is never printed.
    pub url: SecretString,
    /// How much of users' text is kept (`records.content`).
    pub content: ContentMode,
    /// The process that writes.
    pub instance: InstanceId,
    /// The URL at which it serves, for commands over the same SQLite database.
    pub serves: Option<String>,
    /// What to do when the database is unavailable at start.
    pub at_start: AtStart,
    /// Maximum wait for commit 1, intents and claims; then `Unavailable`.
    pub write_deadline: Duration,
    /// Maximum wait for commit 2; then `Unavailable`. It is longer because the work is already done.
    pub close_deadline: Duration,
    /// Maximum number of waiting writes; a further one is `Unavailable` at once.
    pub queue: usize,
    /// Timeout of a query; then it is `TooSlow`.
    pub read_limit: Duration,
    /// A process that has not renewed its lease for this long counts as dead.
    pub lease: Duration,
    /// Another process may take a run whose holder has not renewed its lease for this long.
    pub run_lease: Duration,
    /// How long ended runs are kept, with their journals and their lines in threads, and ended planning sessions with
    /// their plans; `None` keeps them forever.
    pub runs_kept: Option<Duration>,
    /// How long closed decisions are kept, with their calls; `None` keeps them forever.
    pub records_kept: Option<Duration>,
    /// How many planning sessions there may be at once.
    pub sessions: SessionLimits,
    /// The configured audit keys.
    pub audit: AuditSecrets,
    /// SQLite only: maximum size of the file in bytes; beyond it writes are `Unavailable`.
    pub max_bytes: Option<u64>,
}

impl StoreConfig {
    /// The defaults: everything is kept, an unavailable database is an error, deadlines are 2 s and 5 s.
    pub fn new(url: impl Into<String>, instance: InstanceId) -> Self {
        Self {
            url: SecretString::from(url.into()),
            content: ContentMode::Full,
            instance,
            serves: None,
            at_start: AtStart::Fail,
            write_deadline: Duration::from_secs(2),
            close_deadline: Duration::from_secs(5),
            queue: 4096,
            read_limit: READ_LIMIT,
            lease: Duration::from_secs(10),
            run_lease: Duration::from_secs(10),
            runs_kept: None,
            records_kept: None,
            sessions: SessionLimits::default(),
            audit: AuditSecrets::default(),
            max_bytes: None,
        }
    }

    /// How long the store waits, at start and at each later attempt, for a process that is migrating.
    pub(super) fn migrating(&self) -> Duration {
        match self.at_start {
            AtStart::Fail => PATIENCE,
            // A longer wait would delay the message that the store is unavailable.
            AtStart::Background => Duration::from_secs(2),
        }
    }

    pub(super) fn url(&self) -> &str {
        self.url.expose_secret()
    }
}

/// What [`super::Store::open`] does when the database is unavailable. Invalid settings (a bad URL, a changed migration)
/// are errors in either case, if they are detected before `open` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStart {
    /// Returns the error.
    Fail,
    /// Returns a store that is `Unavailable` until the database is available.
    Background,
}

/// `records.content`: what the log keeps of messages, replies, arguments, results and servers' errors.
#[derive(Clone)]
pub enum ContentMode {
    /// Keeps them unchanged.
    Full,
    /// Keeps `hmac:` and the hex HMAC-SHA-256 of each: equal texts can be found, but not read.
    Hash(ContentKey),
    /// Keeps none of them.
    None,
}

/// The key of [`ContentMode::Hash`].
#[derive(Clone)]
pub struct ContentKey(Hmac<Sha256>);

impl ContentKey {
    /// Any length is accepted; 32 random bytes are recommended.
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes keys of any length")))
    }

    pub(super) fn digest(&self, content: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(content);
        format!("hmac:{}", hex::encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for ContentMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "Full",
            Self::Hash(_) => "Hash(…)",
            Self::None => "None",
        })
    }
}

impl ContentMode {
    /// Content as `full`, its keyed hash, or NULL.
    fn kept(&self, content: &str, full: impl FnOnce() -> Value) -> Value {
        match self {
            Self::Full => full(),
            Self::Hash(key) => key.digest(content.as_bytes()).into(),
            Self::None => Value::Text(None),
        }
    }

    /// Plain text: the text, its keyed hash, or NULL.
    pub(super) fn text(&self, text: &str) -> Value {
        self.kept(text, || text.into())
    }

    /// As [`ContentMode::text`] for text that is already shared.
    pub(super) fn shared(&self, text: &std::sync::Arc<str>) -> Value {
        self.kept(text, || text.into())
    }

    /// JSON: the JSON, its hash as a JSON string (the column holds JSON in every mode), or NULL.
    pub(super) fn json(&self, json: &RawValue) -> Value {
        match self {
            Self::Full => Value::text(json.get()),
            Self::Hash(key) => Value::text(&format!("\"{}\"", key.digest(json.get().as_bytes()))),
            Self::None => Value::Text(None),
        }
    }

    /// A fingerprint that distinguishes JSON values: a hash, a keyed hash where content is hashed, or NULL.
    pub(super) fn fingerprint(&self, json: &RawValue) -> Value {
        self.kept(json.get(), || hex::encode(Sha256::digest(json.get())).into())
    }

    /// The message of a failure. Fixed messages of gavel are kept in every mode. A server's messages, and messages that
    /// quote arguments, are content.
    pub(super) fn failure(&self, code: FailureCode, message: &str) -> Value {
        match code.wording() {
            Wording::Fixed => Value::text(message),
            Wording::Own | Wording::Quoted => self.text(message),
        }
    }

    /// The name of an unknown tool that the model called. The column does not allow NULL.
    pub(super) fn unknown_tool(&self, name: &str) -> Value {
        match self {
            Self::Full => Value::text(capped(name)),
            Self::Hash(key) => Value::text(&key.digest(name.as_bytes())),
            Self::None => Value::text(UNKNOWN),
        }
    }
}

/// In place of the name of an unknown tool.
pub(super) const UNKNOWN: &str = "unknown";

/// Names are indexed, and PostgreSQL limits the size of index entries, so at most 256 bytes are kept.
pub(super) fn capped(name: &str) -> &str {
    &name[..name.floor_char_boundary(256)]
}
