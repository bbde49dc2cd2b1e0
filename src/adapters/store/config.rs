//! What the store is told at start.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use super::audit::AuditSecrets;
use crate::domain::ids::InstanceId;

/// The longest a query of the record may take.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(10);

/// How a store is opened. [`StoreConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `sqlite:PATH`, `postgres://…`; may carry a password, so it does not print.
    pub url: SecretString,
    /// What of a person's words is kept (`records.content`).
    pub content: ContentMode,
    /// Who writes.
    pub instance: InstanceId,
    /// What to do when the database is away at start.
    pub at_start: AtStart,
    /// Longest wait for commit 1, intents and claims; then `Unavailable`.
    pub write_deadline: Duration,
    /// Longest wait for commit 2; then `Unavailable`. Longer, because the work is done by then.
    pub close_deadline: Duration,
    /// Writes that may wait; one more is `Unavailable` at once.
    pub queue: usize,
    /// Longest time of a query; then it is `TooSlow`.
    pub read_limit: Duration,
    /// A process that does not renew its lease for so long counts as dead.
    pub lease: Duration,
    /// A run whose holder does not renew its lease for so long is taken up by another process.
    pub run_lease: Duration,
    /// Runs that are over for so long are dropped with their journals and their lines in threads; `None`: never.
    pub runs_kept: Option<Duration>,
    /// The keys of the audit.
    pub audit: AuditSecrets,
    /// SQLite only: the file does not grow beyond so many bytes; writes are then `Unavailable`.
    pub max_bytes: Option<u64>,
}

impl StoreConfig {
    /// The defaults: everything kept, a database that is away is an error, 2 s and 5 s deadlines.
    pub fn new(url: impl Into<String>, instance: InstanceId) -> Self {
        Self {
            url: SecretString::from(url.into()),
            content: ContentMode::Full,
            instance,
            at_start: AtStart::Fail,
            write_deadline: Duration::from_secs(2),
            close_deadline: Duration::from_secs(5),
            queue: 4096,
            read_limit: READ_LIMIT,
            lease: Duration::from_secs(10),
            run_lease: Duration::from_secs(10),
            runs_kept: None,
            audit: AuditSecrets::default(),
            max_bytes: None,
        }
    }

    pub(super) fn url(&self) -> &str {
        self.url.expose_secret()
    }
}

/// What [`super::Store::open`] does when the database does not answer. Wrong settings (a bad URL, a
/// changed migration) are errors with each of them, as far as they are seen before `open` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStart {
    /// Returns the error.
    Fail,
    /// Returns a store that is `Unavailable` and becomes available when the database does.
    Background,
}

/// `records.content`: what the log keeps of messages, replies, arguments, results and servers' errors.
#[derive(Clone)]
pub enum ContentMode {
    /// As they are.
    Full,
    /// `hmac:` and the hex HMAC-SHA-256 of each: equal words can be found, none can be read.
    Hash(ContentKey),
    /// Nothing.
    None,
}

/// The key of [`ContentMode::Hash`].
#[derive(Clone)]
pub struct ContentKey(Hmac<Sha256>);

impl ContentKey {
    /// Any length; 32 random bytes are right.
    #[must_use]
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
