//! The keys that verify users' tokens.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey};

use super::BoxFuture;

/// A source of verification keys.
pub trait KeySource: Send + Sync {
    /// The current keys. Fetches them first when there are none yet.
    fn current(&self) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>>;

    /// Called when no key of generation `seen` verifies a token. Returns a newer set if there is one, else the same
    /// set. The rate of the fetches that this causes is bounded.
    fn newer(&self, seen: u64) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>>;

    /// Identifies a shared secret: logins made under one secret are invalid under the next. An issuer rotates its own
    /// keys, so all issuers return the same value.
    fn fingerprint(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// All keys of an issuer at one point in time.
#[derive(Debug, Default)]
pub struct KeySet {
    /// Increases with every fetched set.
    pub generation: u64,
    /// Only keys that can verify a signature.
    pub keys: Vec<VerifyingKey>,
}

/// One key.
#[derive(Clone, Debug)]
pub struct VerifyingKey {
    /// `kid`, if it has one.
    pub id: Option<String>,
    /// The allowed algorithms. The kind of key determines them, never a token: a public RSA key must not be used as an
    /// HMAC secret.
    pub algorithms: Vec<Algorithm>,
    /// The key itself; prints redacted.
    pub key: DecodingKey,
}

/// No keys are available, so tokens cannot be verified. The reason is for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the issuer's keys are unavailable: {0}")]
pub struct KeysUnavailable(pub Arc<str>);
