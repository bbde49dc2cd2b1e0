//! Authentication of callers.
//!
//! A failure response says only that credentials are missing or invalid. Tokens and keys are never logged.

mod jwt;

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::domain::ids::{DEFAULT_TENANT, TenantId};
use crate::http::connections;
use crate::http::console::origin;
use crate::http::error::{Code, Error};
use crate::http::headers::{API_KEY, only};
use crate::surfaces::caller::{Caller, Identity, OPERATOR};
use crate::surfaces::sessions::{Credential, Session};
pub use jwt::{SharedSecret, Tokens};

/// How callers authenticate.
pub enum Auth {
    /// Not at all: every caller is this one. Only for loopback addresses, which the configuration enforces.
    None(Caller),
    /// Services authenticate with a key in `Authorization: Bearer` or `X-Api-Key`; they may act for any of their users.
    ApiKeys(Vec<ServiceKey>),
    /// Users authenticate with a token from an external issuer, in `Authorization: Bearer`.
    Jwt(Tokens),
    /// One command authenticates with the only key, which it made for the service in its own process. It is served the
    /// API alone, and without a user it reads all users' threads.
    OneCommand(ServiceKey),
}

/// The tenant of callers without a tenant of their own.
fn default_tenant() -> TenantId {
    TenantId::parse(DEFAULT_TENANT).unwrap_or_else(|_| unreachable!("the name is a valid id"))
}

impl Auth {
    /// Every caller is the service `local` of the tenant `default`, with all permissions.
    pub fn none() -> Self {
        Self::None(Caller {
            tenant: default_tenant(),
            identity: Identity::Service(Arc::from("local")),
            roles: Arc::new(BTreeSet::from([OPERATOR.to_owned()])),
        })
    }

    /// Authenticates the caller of a request.
    ///
    /// # Errors
    /// The credentials are missing or invalid; [`Code::AuthUnavailable`]; without authentication, another host is named,
    /// or a page of another site sent the request. With a key or token the origin does not matter, because no page of
    /// another site can set its header.
    pub(super) async fn caller(&self, request: &HttpRequest) -> Result<Caller, Error> {
        let caller = self.authenticated(request).await?;
        connections::belongs_to(request, &caller);
        Ok(caller)
    }

    async fn authenticated(&self, request: &HttpRequest) -> Result<Caller, Error> {
        match self {
            // A page of another site could reach gavel under a host name of its own (DNS rebinding), and would have all
            // permissions.
            Self::None(_) if origin::is_foreign(request) => Err(Error::new(
                Code::Forbidden,
                "With auth.mode = none gavel accepts only localhost and loopback addresses as host; any other host requires \
                 api_key or jwt.",
            )),
            // Such a page must not use requests that a browser sends to any site either: forms, and requests with
            // unreadable responses.
            Self::None(_) if !request.method().is_safe() && !origin::is_own(request) => Err(Error::new(
                Code::Forbidden,
                "A page of another site sent this request (Origin, Sec-Fetch-Site). With auth.mode = none gavel rejects such \
                 requests; a service that sends requests for a page requires api_key or jwt.",
            )),
            Self::None(caller) => Ok(caller.clone()),
            Self::ApiKeys(keys) => find(keys, key(request.headers())?)
                .map(|key| key.caller.clone())
                .ok_or_else(Error::not_accepted),
            Self::OneCommand(only) => find(slice::from_ref(only), key(request.headers())?)
                .map(|key| key.caller.clone())
                .ok_or_else(Error::not_accepted),
            Self::Jwt(tokens) => {
                tokens
                    .verify(bearer(request.headers())?.ok_or_else(Error::unauthenticated)?)
                    .await
            }
        }
    }

    /// Verifies the key or token of a console login.
    ///
    /// # Errors
    /// The secret is invalid; [`Code::AuthUnavailable`].
    pub(super) async fn shown(&self, secret: &str) -> Result<Shown, Error> {
        match self {
            Self::None(_) | Self::OneCommand(_) => Err(Error::not_accepted()),
            Self::ApiKeys(keys) => {
                let key = find(keys, secret.as_bytes()).ok_or_else(Error::not_accepted)?;
                Ok(Shown {
                    credential: Credential::Key {
                        name: Arc::clone(&key.name),
                        fingerprint: key.fingerprint(),
                    },
                    caller: key.caller.clone(),
                    until_us: None,
                })
            }
            Self::Jwt(tokens) => {
                let (caller, until_us) = tokens.verify_until(secret).await?;
                Ok(Shown {
                    credential: Credential::Token {
                        fingerprint: tokens.fingerprint(),
                        roles: Arc::clone(&caller.roles),
                    },
                    caller,
                    until_us: Some(until_us),
                })
            }
        }
    }

    /// The caller of a console session under the current configuration; `None` if the key was removed or replaced, or
    /// if other tokens are accepted now.
    pub(super) fn of_session(&self, session: &Session) -> Option<Caller> {
        match (self, &session.credential) {
            (Self::ApiKeys(keys), Credential::Key { name, fingerprint }) => {
                let key = keys.iter().find(|key| key.name == *name)?;
                let same = key.fingerprint() == *fingerprint && key.caller.tenant == session.tenant;
                // The key may since have been assigned to one user.
                let same = same
                    && key
                        .caller
                        .act_for(session.user.clone())
                        .is_ok_and(|user| user == session.user);
                same.then(|| key.caller.clone())
            }
            (Self::Jwt(tokens), Credential::Token { fingerprint, roles }) => {
                let user = session.user.clone()?;
                (tokens.fingerprint() == *fingerprint).then(|| Caller {
                    tenant: session.tenant.clone(),
                    identity: Identity::User(user),
                    roles: Arc::clone(roles),
                })
            }
            _ => None,
        }
    }
}

/// A verified key or token of a console login.
pub(super) struct Shown {
    /// The caller that it authenticates.
    pub(super) caller: Caller,
    /// The part that the session stores.
    pub(super) credential: Credential,
    /// Its expiry, microseconds since the epoch; absent for a key.
    pub(super) until_us: Option<i64>,
}

/// The single key of a request, from `Authorization: Bearer` or `X-Api-Key`. Two keys are rejected.
fn key(headers: &HeaderMap) -> Result<&[u8], Error> {
    let plain = given(headers, &API_KEY)?.map(|value| value.as_bytes());
    match (bearer(headers)?, plain) {
        (None, None) => Err(Error::unauthenticated()),
        (Some(token), None) => Ok(token.as_bytes()),
        (None, Some(key)) if !key.is_empty() => Ok(key),
        (None, Some(_)) | (Some(_), Some(_)) => Err(Error::not_accepted()),
    }
}

/// The token of `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(value) = given(headers, &header::AUTHORIZATION)? else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Error::not_accepted())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(Error::not_accepted)?;
    let token = token.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(Some(token))
    } else {
        Err(Error::not_accepted())
    }
}

/// The value of a header that may occur only once.
fn given<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a header::HeaderValue>, Error> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    only(headers, name).map(Some).ok_or_else(Error::not_accepted)
}

/// The API key of one service or one user.
pub struct ServiceKey {
    /// The unique name of the key.
    pub name: Arc<str>,
    /// SHA-256 of the key's text.
    pub sha256: [u8; 32],
    /// The caller that the key authenticates.
    pub caller: Caller,
}

/// Finds the key with the presented text. Compares all hashes in constant time, so the duration reveals neither how
/// much of a key matched nor which one.
fn find<'k>(keys: &'k [ServiceKey], presented: &[u8]) -> Option<&'k ServiceKey> {
    let presented: [u8; 32] = Sha256::digest(presented).into();
    let mut found = None;
    for key in keys {
        let same: Choice = key.sha256.ct_eq(&presented);
        if bool::from(same) {
            found = Some(key);
        }
    }
    found
}

impl ServiceKey {
    /// Distinguishes the key from another one of the same name. It is a hash of the key's hash, so that stored logins
    /// contain nothing that a configuration would accept.
    fn fingerprint(&self) -> Arc<str> {
        let mut hash = Sha256::new_with_prefix(b"gavel console key");
        hash.update(self.sha256);
        hex::encode(hash.finalize()).into()
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let request = pairs
            .iter()
            .fold(TestRequest::default(), |request, pair| request.append_header(*pair));
        request.to_http_request().headers().clone()
    }

    #[test]
    fn a_key_comes_as_a_bearer_token_or_as_x_api_key() {
        assert_eq!(key(&headers(&[("authorization", "Bearer abc")])), Ok(&b"abc"[..]));
        assert_eq!(key(&headers(&[("authorization", "bearer  abc ")])), Ok(&b"abc"[..]));
        assert_eq!(key(&headers(&[("x-api-key", "abc")])), Ok(&b"abc"[..]));
        assert_eq!(key(&headers(&[])), Err(Error::unauthenticated()));
    }

    #[test]
    fn two_credentials_or_another_scheme_are_not_accepted() {
        let bad: [&[(&str, &str)]; 6] = [
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            &[("authorization", "Bearer a"), ("x-api-key", "a")],
            &[("x-api-key", "a"), ("x-api-key", "b")],
            &[("authorization", "Basic YTpi")],
            &[("authorization", "Bearer ")],
            &[("x-api-key", "")],
        ];
        for pairs in bad {
            assert_eq!(key(&headers(pairs)), Err(Error::not_accepted()), "{pairs:?}");
        }
    }
}

#[cfg(test)]
mod api_key_tests {
    use super::*;
    use crate::domain::ids::TenantId;
    use crate::surfaces::caller::Identity;

    fn key(name: &str, text: &str) -> ServiceKey {
        let caller = Caller {
            tenant: TenantId::parse(format!("tenant-of-{name}")).unwrap(),
            identity: Identity::Service(Arc::from(name)),
            roles: Arc::default(),
        };
        ServiceKey {
            name: Arc::from(name),
            sha256: Sha256::digest(text).into(),
            caller,
        }
    }

    #[test]
    fn a_key_finds_its_own_service_and_nothing_else_does() {
        let keys = [key("one", "first"), key("two", "second")];
        let two = &find(&keys, b"second").unwrap().caller;
        assert_eq!(two.name(), "service:two");
        assert_eq!(two.tenant.as_str(), "tenant-of-two");
        for invalid in [&b""[..], b"secon", b"second ", b"SECOND", &Sha256::digest("second")[..]] {
            assert!(find(&keys, invalid).is_none());
        }
    }
}
