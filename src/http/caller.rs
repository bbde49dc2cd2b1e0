//! Who is asking: `auth.mode = none | api_key | jwt` (DESIGN.md section 9).

use std::collections::BTreeSet;
use std::sync::Arc;

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::domain::ids::{TenantId, UserId};
use crate::surfaces::caller::{Caller, Identity};

/// How callers prove who they are.
pub enum Auth {
    /// They do not: one service, `local`, of one tenant. Only on loopback, which the configuration checks.
    None(Caller),
    /// Services, by a key in `Authorization: Bearer` or `X-Api-Key`.
    ApiKeys(Vec<ServiceKey>),
    /// Users, by a token in `Authorization: Bearer`.
    Jwt(Tokens),
}

/// One service's key.
pub struct ServiceKey {
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// Who it is.
    pub caller: Caller,
}

/// Whose tokens count.
pub struct Tokens {
    /// Keys they are checked with.
    pub keys: Arc<dyn TokenKeys>,
    /// `iss`.
    pub issuer: String,
    /// `aud`.
    pub audience: String,
    /// The claim that names the tenant; absent: everybody is in `default`.
    pub tenant_claim: Option<String>,
    /// The claim with the list of roles.
    pub roles_claim: String,
}

/// The keys of an issuer.
#[async_trait::async_trait]
pub trait TokenKeys: Send + Sync {
    /// The key for a token with this `kid`, with the only algorithms it may be used for.
    async fn key(&self, kid: Option<&str>) -> Option<(DecodingKey, Vec<Algorithm>)>;
}

/// A shared secret: HS256 and nothing else.
pub struct SharedSecret(pub Vec<u8>);

#[async_trait::async_trait]
impl TokenKeys for SharedSecret {
    async fn key(&self, _kid: Option<&str>) -> Option<(DecodingKey, Vec<Algorithm>)> {
        Some((DecodingKey::from_secret(&self.0), vec![Algorithm::HS256]))
    }
}

/// No valid credentials. Does not say which part was wrong.
#[derive(Clone, Copy, Debug)]
pub struct Unauthenticated;

impl Auth {
    /// The local caller of `auth.mode = none`.
    #[must_use]
    pub fn none() -> Self {
        let tenant = default_tenant();
        Self::None(Caller {
            tenant,
            identity: Identity::Service(Arc::from("local")),
            roles: Arc::default(),
        })
    }

    /// Finds out who is asking.
    ///
    /// # Errors
    /// [`Unauthenticated`].
    pub async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Unauthenticated> {
        match self {
            Self::None(caller) => Ok(caller.clone()),
            Self::ApiKeys(keys) => {
                let given = bearer(headers)
                    .or_else(|| headers.get("x-api-key")?.to_str().ok())
                    .ok_or(Unauthenticated)?;
                by_key(keys, given).ok_or(Unauthenticated)
            }
            Self::Jwt(tokens) => tokens.caller(bearer(headers).ok_or(Unauthenticated)?).await,
        }
    }
}

fn default_tenant() -> TenantId {
    TenantId::parse("default").unwrap_or_else(|_| unreachable!("a valid id"))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Compares hashes, all of them and each in constant time, so that time tells nothing.
fn by_key(keys: &[ServiceKey], given: &str) -> Option<Caller> {
    let given = Sha256::digest(given.as_bytes());
    let mut found = None;
    for key in keys {
        let same: Choice = key.sha256.as_slice().ct_eq(given.as_slice());
        if bool::from(same) {
            found = Some(key.caller.clone());
        }
    }
    found
}

impl Tokens {
    async fn caller(&self, token: &str) -> Result<Caller, Unauthenticated> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| Unauthenticated)?;
        let (key, algorithms) = self.keys.key(header.kid.as_deref()).await.ok_or(Unauthenticated)?;
        // The key's algorithms count, never the token's word alone.
        if !algorithms.contains(&header.alg) {
            return Err(Unauthenticated);
        }
        let mut validation = Validation::new(header.alg);
        validation.algorithms = vec![header.alg];
        validation.leeway = 30;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let claims = jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation).map_err(|error| {
            tracing::info!(%error, "a token was refused");
            Unauthenticated
        })?;
        self.read(&claims.claims)
    }

    fn read(&self, claims: &Map<String, Value>) -> Result<Caller, Unauthenticated> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let user = text("sub")
            .and_then(|sub| UserId::parse(sub).ok())
            .ok_or(Unauthenticated)?;
        let tenant = match &self.tenant_claim {
            None => default_tenant(),
            Some(claim) => text(claim)
                .and_then(|name| TenantId::parse(name).ok())
                .ok_or(Unauthenticated)?,
        };
        let roles: BTreeSet<String> = match claims.get(&self.roles_claim) {
            Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(Value::String(roles)) => roles.split_whitespace().map(str::to_owned).collect(),
            _ => BTreeSet::new(),
        };
        Ok(Caller {
            tenant,
            identity: Identity::User(user),
            roles: Arc::new(roles),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn tokens() -> Tokens {
        Tokens {
            keys: Arc::new(SharedSecret(SECRET.to_vec())),
            issuer: "https://issuer".into(),
            audience: "gavel".into(),
            tenant_claim: Some("org".into()),
            roles_claim: "roles".into(),
        }
    }

    fn claims() -> Value {
        let exp = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs()
            + 600;
        json!({"iss": "https://issuer", "aud": "gavel", "sub": "ann", "org": "acme", "roles": ["analyst"], "exp": exp})
    }

    fn signed(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
        jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    #[tokio::test]
    async fn a_good_token_names_user_tenant_and_roles() {
        let caller = tokens()
            .caller(&signed(Algorithm::HS256, SECRET, &claims()))
            .await
            .unwrap();
        assert_eq!(caller.identity, Identity::User(UserId::parse("ann").unwrap()));
        assert_eq!(caller.tenant.as_str(), "acme");
        assert!(caller.roles.contains("analyst"));
    }

    #[tokio::test]
    async fn every_other_token_is_refused() {
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            signed(Algorithm::HS256, SECRET, &claims)
        };
        let without = |name: &str| {
            let mut claims = claims();
            claims.as_object_mut().unwrap().remove(name);
            signed(Algorithm::HS256, SECRET, &claims)
        };
        let none = format!("{}.{}.", "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0", "eyJzdWIiOiJhbm4ifQ");
        let bad = [
            with("iss", json!("https://other")),
            with("aud", json!("other")),
            with("exp", json!(1)),
            with("nbf", json!(99_999_999_999_u64)),
            with("sub", json!("")),
            with("org", json!(7)),
            without("exp"),
            without("sub"),
            without("aud"),
            without("org"),
            signed(Algorithm::HS512, SECRET, &claims()),
            signed(Algorithm::HS256, b"another secret of thirty-two byte", &claims()),
            none,
            "x".to_owned(),
        ];
        for token in bad {
            assert!(tokens().caller(&token).await.is_err(), "{token}");
        }
    }

    #[test]
    fn a_key_is_known_by_its_hash() {
        let Auth::None(caller) = Auth::none() else { panic!() };
        let keys = [ServiceKey {
            sha256: Sha256::digest(b"right").into(),
            caller: caller.clone(),
        }];
        assert_eq!(by_key(&keys, "right"), Some(caller));
        assert_eq!(by_key(&keys, "wrong"), None);
        assert_eq!(by_key(&keys, ""), None);
    }
}
