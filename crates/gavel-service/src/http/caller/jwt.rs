//! User tokens: JWT (RFC 7519), verified with the issuer's keys or a shared secret.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, get_current_timestamp};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::default_tenant;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::text::{capped, escaped};
use crate::http::error::{Code, Error};
use crate::surfaces::caller::{Caller, Identity, KeySet, KeySource, KeysUnavailable, VerifyingKey};

/// Allowed clock difference, in seconds.
const LEEWAY_S: u64 = 60;
/// Most bytes of a logged claim.
const LONGEST_SHOWN: usize = 200;
/// Most bytes of a token.
const MAX_TOKEN: usize = 16 * 1024;

/// Which tokens are accepted, and which claims are read.
pub struct Tokens {
    /// The keys that verify signatures.
    pub keys: Arc<dyn KeySource>,
    /// Required `iss`, compared exactly.
    pub issuer: String,
    /// The value that `aud` must be or contain.
    pub audience: String,
    /// The claim that names the tenant, which every token must then carry; absent: all users are in the tenant
    /// `default`.
    pub tenant_claim: Option<String>,
    /// The claim with the roles: a list of strings, or one string with roles separated by spaces.
    pub roles_claim: String,
}

impl Tokens {
    /// The user of a token. For operators, logs the claim that caused a rejection and the expected value, at debug
    /// level.
    ///
    /// # Errors
    /// The token is invalid; [`Code::AuthUnavailable`].
    pub(super) async fn verify(&self, token: &str) -> Result<Caller, Error> {
        self.verify_until(token).await.map(|(caller, _)| caller)
    }

    /// As [`Tokens::verify`], with the expiry of the token, microseconds since the epoch.
    ///
    /// # Errors
    /// As [`Tokens::verify`].
    pub(super) async fn verify_until(&self, token: &str) -> Result<(Caller, i64), Error> {
        self.verified(token).await.map_err(|refusal| match refusal {
            Refusal::Keys(error) => {
                tracing::error!(%error, "tokens cannot be verified");
                Code::AuthUnavailable.into()
            }
            Refusal::Token(Misfit { claim, found, expected }) => {
                tracing::debug!(claim, found, expected, "a token was rejected");
                Error::not_accepted()
            }
        })
    }

    async fn verified(&self, token: &str) -> Result<(Caller, i64), Refusal> {
        let claims = self.claims(token).await?;
        is_begun(&claims)?;
        let end = until(&claims).ok_or_else(|| Misfit::of(&claims, "exp", "seconds since 1970, a number"))?;
        Ok((self.caller(&claims)?, end))
    }

    /// Identifies which tokens are accepted and which claims are read, for logins that outlive the process.
    pub(super) fn fingerprint(&self) -> Arc<str> {
        let mut hash = Sha256::new_with_prefix(b"gavel console token");
        let tenant_claim = self.tenant_claim.as_deref().unwrap_or_default();
        for part in [&self.issuer, &self.audience, tenant_claim, &self.roles_claim] {
            // The length precedes each part, so that no two different lists of parts have the same bytes.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(self.keys.fingerprint());
        hex::encode(hash.finalize()).into()
    }

    async fn claims(&self, token: &str) -> Result<Map<String, Value>, Refusal> {
        if token.len() > MAX_TOKEN {
            let length = format!("{} bytes", token.len());
            return Err(Misfit::new("length of the token", length, format!("at most {MAX_TOKEN} bytes")).into());
        }
        let header = decode_header(token)
            .map_err(|error| Misfit::new("header of the token", error.to_string(), "a JWT of a known algorithm"))?;
        if let Some(critical) = header.crit {
            // RFC 7515 section 4.1.11: a critical extension that is not understood must be rejected.
            return Err(Misfit::new("crit", format!("{critical:?}"), "no critical extensions").into());
        }
        let checks = self.checks(header.alg);
        let set = self.keys.current().await?;
        if let Some(read) = self.read(token, &set, header.kid.as_deref(), &checks) {
            return read;
        }
        // No key verifies it. The issuer may have replaced a key, under the same name or without a name.
        let newer = self.keys.newer(set.generation).await?;
        let is_newer = newer.generation != set.generation;
        let read = is_newer
            .then(|| self.read(token, &newer, header.kid.as_deref(), &checks))
            .flatten();
        read.unwrap_or_else(|| {
            let of = |key: &VerifyingKey| key.id.clone().unwrap_or_else(|| "a key without kid".to_owned());
            let keys: Vec<_> = newer.keys.iter().map(of).collect();
            let found = format!("kid {:?}, alg {:?}", header.kid, header.alg);
            let expected = format!("a signature by one of the issuer's keys: {}", keys.join(", "));
            Err(Misfit::new("signature", found, expected).into())
        })
    }

    /// The claims of a token that one of the keys verifies, or why they are invalid; `None` if no key verifies it.
    fn read(
        &self,
        token: &str,
        set: &KeySet,
        id: Option<&str>,
        checks: &Validation,
    ) -> Option<Result<Map<String, Value>, Refusal>> {
        let algorithm = *checks.algorithms.first()?;
        usable(set, id, algorithm).into_iter().find_map(|key| {
            match decode::<Map<String, Value>>(token, &key.key, checks) {
                Ok(data) => Some(Ok(data.claims)),
                Err(error) => match error.kind() {
                    ErrorKind::InvalidSignature => None,
                    kind => Some(Err(self.misfit(kind, token).into())),
                },
            }
        })
    }

    /// The invalid claim of a token with a valid signature.
    fn misfit(&self, kind: &ErrorKind, token: &str) -> Misfit {
        let claims = unchecked(token).unwrap_or_default();
        match kind {
            ErrorKind::InvalidIssuer => Misfit::of(&claims, "iss", format!("{:?}", self.issuer)),
            ErrorKind::InvalidAudience => Misfit::of(&claims, "aud", format!("{:?}, or a list with it", self.audience)),
            ErrorKind::ExpiredSignature => Misfit::of(&claims, "exp", format!("a time less than {LEEWAY_S} s ago")),
            ErrorKind::MissingRequiredClaim(claim) => Misfit::of(&claims, claim, "a value"),
            other => Misfit::new("claims", format!("{other:?}"), "a JSON object of claims"),
        }
    }

    fn checks(&self, algorithm: Algorithm) -> Validation {
        let mut checks = Validation::new(algorithm);
        checks.leeway = LEEWAY_S;
        checks.set_issuer(&[&self.issuer]);
        checks.set_audience(&[&self.audience]);
        checks.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        checks
    }

    fn caller(&self, claims: &Map<String, Value>) -> Result<Caller, Misfit> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        // RFC 7519 section 4.1.1: one text. The library also accepts a list.
        if text("iss") != Some(&self.issuer) {
            return Err(Misfit::of(claims, "iss", format!("{:?}", self.issuer)));
        }
        let user = text("sub").and_then(|user| UserId::parse(user).ok());
        let user = user.ok_or_else(|| Misfit::of(claims, "sub", "a user's id"))?;
        let tenant = match &self.tenant_claim {
            None => default_tenant(),
            Some(claim) => text(claim)
                .and_then(|tenant| TenantId::parse(tenant).ok())
                .ok_or_else(|| Misfit::of(claims, claim, "a tenant's id (auth.jwt.tenant_claim)"))?,
        };
        let roles = roles(claims.get(&self.roles_claim)).ok_or_else(|| {
            let expected = "a list of texts, or a text with roles separated by blanks (auth.jwt.roles_claim)";
            Misfit::of(claims, &self.roles_claim, expected)
        })?;
        Ok(Caller {
            tenant,
            identity: Identity::User(user),
            roles: Arc::new(roles),
        })
    }
}

/// Why a token is invalid, for operators: the claim, the value found, and the value expected.
#[derive(Debug, thiserror::Error)]
#[error("{claim} is {found}; expected: {expected}")]
struct Misfit {
    claim: String,
    found: String,
    expected: String,
}

impl Misfit {
    fn new(claim: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            claim: claim.to_owned(),
            found: capped(&found.into(), LONGEST_SHOWN).into_owned(),
            expected: expected.into(),
        }
    }

    fn of(claims: &Map<String, Value>, claim: &str, expected: impl Into<String>) -> Self {
        let found = claims.get(claim).map_or_else(|| "absent".to_owned(), Value::to_string);
        Self::new(claim, escaped(&found), expected)
    }
}

/// The claims of a token whose signature is verified but whose claims are invalid.
fn unchecked(token: &str) -> Option<Map<String, Value>> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Token(#[from] Misfit),
    #[error(transparent)]
    Keys(#[from] KeysUnavailable),
}

/// The keys that may verify a token: the key it names, or without a name any matching key. The algorithm must be one of
/// the key's, whatever the token says.
fn usable<'a>(set: &'a KeySet, id: Option<&str>, algorithm: Algorithm) -> Vec<&'a VerifyingKey> {
    let named = |key: &&VerifyingKey| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
    set.keys
        .iter()
        .filter(named)
        .filter(|key| key.algorithms.contains(&algorithm))
        .collect()
}

/// The verified `exp`. RFC 7519 allows fractions.
#[allow(clippy::cast_possible_truncation)] // Saturates; real dates are far below the limit.
fn until(claims: &Map<String, Value>) -> Option<i64> {
    let seconds = claims.get("exp")?.as_f64()?;
    Some((seconds * 1e6) as i64)
}

/// A token of the future is invalid: it must not be used yet (`nbf`), or the issuer's clock is wrong (`iat`) and its
/// `exp` cannot be trusted either.
#[allow(clippy::cast_precision_loss)] // Exact until the year 285 million.
fn is_begun(claims: &Map<String, Value>) -> Result<(), Misfit> {
    let latest = get_current_timestamp().saturating_add(LEEWAY_S) as f64;
    let is_past = |time: &Value| time.as_f64().is_some_and(|time| time <= latest);
    match ["iat", "nbf"]
        .into_iter()
        .find(|name| !claims.get(*name).is_none_or(is_past))
    {
        None => Ok(()),
        Some(claim) => {
            let expected = format!("seconds since 1970, at most {LEEWAY_S} s ahead");
            Err(Misfit::of(claims, claim, expected))
        }
    }
}

/// The roles; `None` when the claim is present and cannot be parsed.
fn roles(claim: Option<&Value>) -> Option<BTreeSet<String>> {
    match claim {
        None | Some(Value::Null) => Some(BTreeSet::new()),
        Some(Value::String(words)) => Some(words.split_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(list)) => list.iter().map(|role| role.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

/// A secret shared with the issuer; allows only HS256.
pub struct SharedSecret {
    keys: Arc<KeySet>,
    sha256: [u8; 32],
}

impl SharedSecret {
    /// A shorter secret could be found from one token by brute force (RFC 7518 section 3.2).
    pub const MIN_BYTES: usize = 32;

    /// Creates the key source from a secret of at least [`Self::MIN_BYTES`] bytes; `None` for a shorter one.
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
