//! How long a caller wants to wait.

use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use super::error::Error;
use super::headers::{IDEMPOTENCY_KEY, only};
use super::query;
use crate::domain::ids::UserId;
use crate::surfaces::caller::Caller;
use crate::surfaces::request::Claim;

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// How long the caller wants to wait (RFC 7240).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until the run has ended.
    All,
    /// `wait=N`: at most this long.
    Some(Duration),
    /// `respond-async`: not at all.
    None,
}

impl Patience {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let mut patience = Self::All;
        for value in headers.get_all(PREFER) {
            let text = value
                .to_str()
                .map_err(|_| Error::InvalidHeader("Prefer", "is not ASCII"))?;
            for preference in text.split([',', ';']).map(str::trim) {
                let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
                if name.trim().eq_ignore_ascii_case("respond-async") {
                    patience = Self::None;
                } else if name.trim().eq_ignore_ascii_case("wait") && patience != Self::None {
                    let seconds = query::number(value.trim().trim_matches('"'));
                    let seconds = seconds.ok_or(Error::InvalidHeader("Prefer", "wait must be whole seconds"))?;
                    patience = Self::Some(Duration::from_secs(seconds));
                }
            }
        }
        Ok(patience)
    }

    /// Waits this long, and reads the current state if it was not long enough.
    pub(crate) async fn wait_or<T, E, F: Into<E>>(
        self,
        until: impl Future<Output = Result<T, E>>,
        read: impl Future<Output = Result<T, F>>,
    ) -> Result<T, E> {
        match self.wait(until).await? {
            Some(found) => Ok(found),
            None => read.await.map_err(Into::into),
        }
    }

    /// Waits this long. `None` if it was not long enough.
    pub(crate) async fn wait<T, E>(self, until: impl Future<Output = Result<T, E>>) -> Result<Option<T>, E> {
        match self {
            Self::All => until.await.map(Some),
            Self::Some(most) => tokio::time::timeout(most, until).await.ok().transpose(),
            Self::None => Ok(None),
        }
    }

    pub(crate) const fn applied(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Some(_) => Some("wait"),
            Self::None => Some("respond-async"),
        }
    }
}

// `Idempotency-Key`: the key of a request, and what it claims.

/// Most characters of an idempotency key.
const MAX_KEY: usize = 255;

/// `Idempotency-Key`, 1..=255 visible ASCII characters.
///
/// # Errors
/// [`Error::InvalidHeader`].
pub(super) fn key(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    const NAME: &str = "Idempotency-Key";
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        return Ok(None);
    }
    let Some(value) = only(headers, &IDEMPOTENCY_KEY) else {
        return Err(Error::InvalidHeader(NAME, "is given more than once"));
    };
    let bytes = value.as_bytes();
    if !(1..=MAX_KEY).contains(&bytes.len()) || !bytes.iter().all(u8::is_ascii_graphic) {
        return Err(Error::InvalidHeader(NAME, "must be 1 to 255 visible ASCII characters"));
    }
    Ok(value.to_str().ok())
}

/// Binds a key to tenant, caller, user (if named), route and body.
pub(super) fn claim(key: &str, caller: &Caller, user: Option<&UserId>, route: &str, body: &[u8]) -> Claim {
    let mut scope = Sha256::new();
    let user = user.map_or("", UserId::as_str);
    for part in [caller.tenant.as_str(), &caller.name(), user, route, key] {
        // The length precedes each part, so that no two different lists of parts have the same bytes.
        scope.update((part.len() as u64).to_be_bytes());
        scope.update(part.as_bytes());
    }
    Claim {
        scope: hex::encode(scope.finalize()).into(),
        fingerprint: hex::encode(Sha256::digest(body)).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::domain::ids::TenantId;
    use crate::surfaces::caller::Identity;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        headers
    }

    #[test]
    fn an_idempotency_key_is_1_to_255_visible_characters_given_once() {
        assert_eq!(key(&map(&[])), Ok(None));
        assert_eq!(key(&map(&[("idempotency-key", "k-1")])), Ok(Some("k-1")));
        let longest = "x".repeat(255);
        assert_eq!(key(&map(&[("idempotency-key", &longest)])), Ok(Some(&*longest)));
        for bad in ["", "a b", "ü", "\t", &"x".repeat(256)] {
            assert!(key(&map(&[("idempotency-key", bad)])).is_err(), "{bad:?}");
        }
        assert!(key(&map(&[("idempotency-key", "a"), ("idempotency-key", "a")])).is_err());
    }

    fn caller(tenant: &str, identity: Identity) -> Caller {
        Caller {
            tenant: TenantId::parse(tenant).unwrap(),
            identity,
            roles: Arc::default(),
        }
    }

    #[test]
    fn a_key_means_something_else_for_every_tenant_caller_user_route_and_body() {
        let service = |name: &str| Identity::Service(Arc::from(name));
        let user = |name: &str| UserId::parse(name).unwrap();
        let of = |key, tenant, identity, who: &str, route, body: &str| {
            claim(key, &caller(tenant, identity), Some(&user(who)), route, body.as_bytes())
        };
        let base = of("k", "t", service("s"), "u", "r", "b");
        let others = [
            of("k2", "t", service("s"), "u", "r", "b"),
            of("k", "t2", service("s"), "u", "r", "b"),
            of("k", "t", service("s2"), "u", "r", "b"),
            of("k", "t", Identity::User(user("s")), "u", "r", "b"),
            of("k", "t", service("s"), "u2", "r", "b"),
            of("k", "t", service("s"), "u", "r2", "b"),
            // The same characters, cut elsewhere.
            of("k", "t", service("s"), "ur", "", "b"),
        ];
        for other in &others {
            assert_ne!(other.scope, base.scope);
            assert_eq!(other.fingerprint, base.fingerprint);
        }
        let changed = of("k", "t", service("s"), "u", "r", "b2");
        assert_eq!(changed.scope, base.scope);
        assert_ne!(changed.fingerprint, base.fingerprint);
        assert_eq!(base.scope.len(), 64);
    }
}
