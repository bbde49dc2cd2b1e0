//! Who is asking (DESIGN.md section 9, Callers).
//!
//! A failed answer says that credentials are missing or were not accepted, and nothing more. Tokens
//! and keys are never logged.

mod api_key;
mod jwt;

use std::collections::BTreeSet;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};

pub use self::api_key::ServiceKey;
pub use self::jwt::{SharedSecret, Tokens};
use super::console::origin;
use super::error::Error;
use super::headers::{API_KEY, only};
use crate::domain::ids::{DEFAULT_TENANT, TenantId};
use crate::surfaces::caller::{Caller, Identity, OPERATOR};
use crate::surfaces::sessions::{Credential, Session};

/// How callers prove who they are.
pub enum Auth {
    /// They do not: everybody is this one. Only for loopback addresses, which the configuration sees to.
    None(Caller),
    /// Services, each by its key in `Authorization: Bearer` or `X-Api-Key`; they may act for any of
    /// their users.
    ApiKeys(Vec<ServiceKey>),
    /// Users, by a token that somebody else issued, in `Authorization: Bearer`.
    Jwt(Tokens),
}

/// The tenant of callers that are not told apart.
fn default_tenant() -> TenantId {
    TenantId::parse(DEFAULT_TENANT).unwrap_or_else(|_| unreachable!("the name is a valid id"))
}

impl Auth {
    /// Everybody is the service `local` of the tenant `default`, who may do everything.
    #[must_use]
    pub fn none() -> Self {
        Self::None(Caller {
            tenant: default_tenant(),
            identity: Identity::Service(Arc::from("local")),
            roles: Arc::new(BTreeSet::from([OPERATOR.to_owned()])),
        })
    }

    /// Finds out who is asking.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`], [`Error::NotAccepted`], [`Error::AuthUnavailable`]; where callers are not told apart,
    /// [`Error::NotThisHost`] and [`Error::ForeignPage`]. A key or a token stands in a header that no page of another site can
    /// set, so that where it came from does not matter.
    pub(super) async fn caller(&self, request: &HttpRequest) -> Result<Caller, Error> {
        match self {
            // A page elsewhere could reach us by a name of its own (DNS rebinding), and would be everybody then.
            Self::None(_) if origin::is_foreign(request) => Err(Error::NotThisHost),
            // Nor may it act by what a browser sends to every site: forms, and requests whose answers it never sees.
            Self::None(_) if !request.method().is_safe() && !origin::is_own(request) => Err(Error::ForeignPage),
            Self::None(caller) => Ok(caller.clone()),
            Self::ApiKeys(keys) => api_key::find(keys, key(request.headers())?)
                .map(|key| key.caller.clone())
                .ok_or(Error::NotAccepted),
            Self::Jwt(tokens) => {
                tokens
                    .verify(bearer(request.headers())?.ok_or(Error::Unauthenticated)?)
                    .await
            }
        }
    }

    /// What a person shows to log in to the console: a key, or a token.
    ///
    /// # Errors
    /// [`Error::NotAccepted`] whatever is wrong with it; [`Error::AuthUnavailable`].
    pub(super) async fn shown(&self, secret: &str) -> Result<Shown, Error> {
        match self {
            Self::None(_) => Err(Error::NotAccepted),
            Self::ApiKeys(keys) => {
                let key = api_key::find(keys, secret.as_bytes()).ok_or(Error::NotAccepted)?;
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

    /// Who a login to the console is, as things are now: `None` when the key was taken away or replaced, or when other
    /// tokens count by now.
    pub(super) fn of_session(&self, session: &Session) -> Option<Caller> {
        match (self, &session.credential) {
            (Self::ApiKeys(keys), Credential::Key { name, fingerprint }) => {
                let key = keys.iter().find(|key| key.name == *name)?;
                let same = key.fingerprint() == *fingerprint && key.caller.tenant == session.tenant;
                // It may have become one user's since.
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

/// What somebody showed who logs in to the console.
pub(super) struct Shown {
    /// Who they are.
    pub(super) caller: Caller,
    /// What is kept of it.
    pub(super) credential: Credential,
    /// When it is over by itself, microseconds since the epoch.
    pub(super) until_us: Option<i64>,
}

/// The one key of a request, from `Authorization: Bearer` or `X-Api-Key`. Two are refused rather than
/// one of them chosen.
fn key(headers: &HeaderMap) -> Result<&[u8], Error> {
    let plain = given(headers, &API_KEY)?.map(|value| value.as_bytes());
    match (bearer(headers)?, plain) {
        (None, None) => Err(Error::Unauthenticated),
        (Some(token), None) => Ok(token.as_bytes()),
        (None, Some(key)) if !key.is_empty() => Ok(key),
        (None, Some(_)) | (Some(_), Some(_)) => Err(Error::NotAccepted),
    }
}

/// The token of `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(value) = given(headers, &header::AUTHORIZATION)? else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Error::NotAccepted)?;
    let (scheme, token) = text.split_once(' ').ok_or(Error::NotAccepted)?;
    let token = token.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        Ok(Some(token))
    } else {
        Err(Error::NotAccepted)
    }
}

/// A header that may be given once.
fn given<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a header::HeaderValue>, Error> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    only(headers, name).map(Some).ok_or(Error::NotAccepted)
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
        assert_eq!(key(&headers(&[])), Err(Error::Unauthenticated));
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
            assert_eq!(key(&headers(pairs)), Err(Error::NotAccepted), "{pairs:?}");
        }
    }
}
