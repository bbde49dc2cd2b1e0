//! The keys that users' tokens are checked with.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey};

use super::BoxFuture;

/// Where verifying keys come from.
pub trait KeySource: Send + Sync {
    /// The keys known now; fetched first when there are none yet.
    fn current(&self) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>>;

    /// Asked when no key of the set of generation `seen` verifies a token: a newer set if there is one by now, else the
    /// same. How often this leads to a fetch is bounded.
    fn newer(&self, seen: u64) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>>;

    /// Tells one shared secret from another: logins that were made under one do not count under the next. The keys of an issuer
    /// change by themselves, and all have the same.
    fn fingerprint(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// All keys of an issuer at one time.
#[derive(Debug, Default)]
pub struct KeySet {
    /// Grows with every set fetched.
    pub generation: u64,
    /// Only keys that can verify a signature.
    pub keys: Vec<VerifyingKey>,
}

/// One key.
#[derive(Clone, Debug)]
pub struct VerifyingKey {
    /// `kid`, if it has one.
    pub id: Option<String>,
    /// What it may be used for. Fixed by the kind of key, never by a token: a public RSA key is no
    /// HMAC secret.
    pub algorithms: Vec<Algorithm>,
    /// The key itself; prints redacted.
    pub key: DecodingKey,
}

/// No key can be had, so no token can be checked. Says why, for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the issuer's keys are unavailable: {0}")]
pub struct KeysUnavailable(pub Arc<str>);
