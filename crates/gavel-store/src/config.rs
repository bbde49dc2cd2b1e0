//! The configuration of the store.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use super::audit::AuditSecrets;
use crate::domain::budget::SessionLimits;
use crate::domain::ids::InstanceId;

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
            sessions: SessionLimits::default(),
            audit: AuditSecrets::default(),
            max_bytes: None,
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
