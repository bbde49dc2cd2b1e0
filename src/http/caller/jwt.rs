//! Users' tokens: JWT (RFC 7519), checked against the issuer's keys or a shared secret.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::default_tenant;
use crate::domain::ids::{TenantId, UserId};
use crate::http::error::Error;
use crate::surfaces::caller::{Caller, Identity, KeySet, KeySource, KeysUnavailable, VerifyingKey};

/// Clocks may differ by this many seconds.
const LEEWAY_S: u64 = 60;
/// Longest token looked at.
const MAX_TOKEN: usize = 16 * 1024;

/// Whose tokens count, and what is read from them.
pub struct Tokens {
    /// The keys they are signed with.
    pub keys: Arc<dyn KeySource>,
    /// `iss`, exactly.
    pub issuer: String,
    /// What `aud` must be or contain.
    pub audience: String,
    /// The claim that names the tenant, which every token must then carry; absent: everybody is in
    /// the tenant `default`.
    pub tenant_claim: Option<String>,
    /// The claim with the roles: a list of strings, or one string with spaces between them.
    pub roles_claim: String,
}

impl Tokens {
    /// The user a token speaks for. The reason of a refusal is for operators, at debug level.
    ///
    /// # Errors
    /// [`Error::NotAccepted`], [`Error::AuthUnavailable`].
    pub(super) async fn verify(&self, token: &str) -> Result<Caller, Error> {
        self.verify_until(token).await.map(|(caller, _)| caller)
    }

    /// As [`Tokens::verify`], with when the token is over, microseconds since the epoch.
    ///
    /// # Errors
    /// As [`Tokens::verify`].
    pub(super) async fn verify_until(&self, token: &str) -> Result<(Caller, i64), Error> {
        let claims = match self.claims(token).await {
            Ok(claims) => claims,
            Err(Refusal::Keys(error)) => {
                tracing::error!(%error, "no token can be checked");
                return Err(Error::AuthUnavailable);
            }
            Err(Refusal::Token(reason)) => {
                tracing::debug!(reason, "a token was not accepted");
                return Err(Error::NotAccepted);
            }
        };
        let caller = self.caller(&claims);
        caller.zip(until(&claims)).ok_or_else(|| {
            tracing::debug!("a token lacks a usable subject, end, tenant or roles");
            Error::NotAccepted
        })
    }

    /// Says whose tokens count and what is read from them, for logins that outlive the process.
    pub(super) fn fingerprint(&self) -> Arc<str> {
        let mut hash = Sha256::new_with_prefix(b"gavel console token");
        let tenant_claim = self.tenant_claim.as_deref().unwrap_or_default();
        for part in [&self.issuer, &self.audience, tenant_claim, &self.roles_claim] {
            // Lengths first, so that no two different lists of parts are the same bytes.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(self.keys.fingerprint());
        hex::encode(hash.finalize()).into()
    }

    async fn claims(&self, token: &str) -> Result<Map<String, Value>, Refusal> {
        if token.len() > MAX_TOKEN {
            return Err(Refusal::Token("too long"));
        }
        let header = decode_header(token).map_err(|_| Refusal::Token("no JWT of a known algorithm"))?;
        if header.crit.is_some() {
            // RFC 7515 section 4.1.11: what is critical and not understood must be refused.
            return Err(Refusal::Token("critical extensions"));
        }
        let checks = self.checks(header.alg);
        let set = self.keys.current().await?;
        if let Some(read) = read(token, &set, header.kid.as_deref(), &checks) {
            return read;
        }
        // No key verifies it. The issuer may have put another key in the place of one, under the same name or under none.
        let newer = self.keys.newer(set.generation).await?;
        let is_newer = newer.generation != set.generation;
        let read = is_newer
            .then(|| read(token, &newer, header.kid.as_deref(), &checks))
            .flatten();
        read.unwrap_or(Err(Refusal::Token("unknown key, or wrong signature")))
    }

    fn checks(&self, algorithm: Algorithm) -> Validation {
        let mut checks = Validation::new(algorithm);
        checks.leeway = LEEWAY_S;
        checks.validate_nbf = true;
        checks.set_issuer(&[&self.issuer]);
        checks.set_audience(&[&self.audience]);
        checks.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        checks
    }

    fn caller(&self, claims: &Map<String, Value>) -> Option<Caller> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        // RFC 7519 section 4.1.1: one text. The library takes a list, too.
        text("iss").filter(|issuer| *issuer == self.issuer)?;
        let user = UserId::parse(text("sub")?).ok()?;
        let tenant = match &self.tenant_claim {
            None => default_tenant(),
            Some(claim) => TenantId::parse(text(claim)?).ok()?,
        };
        let roles = Arc::new(roles(claims.get(&self.roles_claim))?);
        Some(Caller {
            tenant,
            identity: Identity::User(user),
            roles,
        })
    }
}

enum Refusal {
    Token(&'static str),
    Keys(KeysUnavailable),
}

impl From<KeysUnavailable> for Refusal {
    fn from(error: KeysUnavailable) -> Self {
        Self::Keys(error)
    }
}

/// The claims of a token that one of the keys verifies, or why they do not count; `None` where no key verifies it.
fn read(
    token: &str,
    set: &KeySet,
    id: Option<&str>,
    checks: &Validation,
) -> Option<Result<Map<String, Value>, Refusal>> {
    let algorithm = *checks.algorithms.first()?;
    usable(set, id, algorithm)
        .into_iter()
        .find_map(|key| match decode::<Map<String, Value>>(token, &key.key, checks) {
            Ok(data) => Some(Ok(data.claims)),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => None,
            Err(_) => Some(Err(Refusal::Token("claims off"))),
        })
}

/// The keys a token may be signed with: the one it names, or without a name any that fits. The
/// algorithm must be one the key is for, whatever the token says.
fn usable<'a>(set: &'a KeySet, id: Option<&str>, algorithm: Algorithm) -> Vec<&'a VerifyingKey> {
    let named = |key: &&VerifyingKey| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
    set.keys
        .iter()
        .filter(named)
        .filter(|key| key.algorithms.contains(&algorithm))
        .collect()
}

/// `exp`, which has been checked. RFC 7519 allows fractions.
#[allow(clippy::cast_possible_truncation)] // Saturates, and no date of this age is near.
fn until(claims: &Map<String, Value>) -> Option<i64> {
    let seconds = claims.get("exp")?.as_f64()?;
    Some((seconds * 1e6) as i64)
}

/// `None` when the claim is there and no roles can be read from it.
fn roles(claim: Option<&Value>) -> Option<BTreeSet<String>> {
    match claim {
        None | Some(Value::Null) => Some(BTreeSet::new()),
        Some(Value::String(words)) => Some(words.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(list)) => list.iter().map(|role| role.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

/// A secret shared with the issuer: HS256 and nothing else.
pub struct SharedSecret {
    keys: Arc<KeySet>,
    sha256: [u8; 32],
}

impl SharedSecret {
    /// A shorter secret could be guessed from one token (RFC 7518 section 3.2).
    pub const MIN_BYTES: usize = 32;

    /// From a secret of at least [`Self::MIN_BYTES`] bytes; `None` for a shorter one.
    #[must_use]
    pub fn new(secret: &[u8]) -> Option<Self> {
        if secret.len() < Self::MIN_BYTES {
            return None;
        }
        let key = VerifyingKey {
            id: None,
            algorithms: vec![Algorithm::HS256],
            key: DecodingKey::from_secret(secret),
        };
        let keys = KeySet {
            generation: 0,
            keys: vec![key],
        };
        Some(Self {
            keys: Arc::new(keys),
            sha256: Sha256::digest(secret).into(),
        })
    }
}

impl KeySource for SharedSecret {
    fn current(&self) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        Box::pin(std::future::ready(Ok(Arc::clone(&self.keys))))
    }

    fn newer(&self, _seen: u64) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        self.current()
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.sha256
    }
}

#[cfg(test)]
mod tests;
