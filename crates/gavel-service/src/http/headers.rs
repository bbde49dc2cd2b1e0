//! Request and response headers.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{Accept, Header, HeaderMap, HeaderName, HeaderValue, Quality};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::domain::ids::UserId;
use crate::http::error::Error;
use crate::http::query;
use crate::surfaces::caller::Caller;
use crate::surfaces::chat::QuotaState;
use crate::surfaces::request::Claim;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
pub(super) const TRUE: HeaderValue = HeaderValue::from_static("true");

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(super) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
pub(super) const EXPORT: HeaderName = HeaderName::from_static("x-gavel-export");
pub(super) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Most characters of a request id.
const MAX_REQUEST_ID: usize = 128;
/// The request id in logs, records and the response.
#[derive(Clone, Debug)]
pub(super) struct RequestId {
    pub(super) text: Arc<str>,
    pub(super) header: HeaderValue,
}

impl RequestId {
    /// The caller's own id, if it has 1 to 128 characters that are safe in logs and headers; else a new one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let is_safe = |text: &&str| {
            let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:~+/=".contains(&byte);
            (1..=MAX_REQUEST_ID).contains(&text.len()) && text.bytes().all(safe)
        };
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let text: Arc<str> = match given.filter(is_safe) {
            Some(given) => given.into(),
            None => Uuid::now_v7().to_string().into(),
        };
        let header = HeaderValue::from_str(&text).unwrap_or_else(|_| unreachable!("it is visible ASCII"));
        Self { text, header }
    }
}

/// A valid W3C `traceparent` of version 00; anything else counts as absent, as the specification requires.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = only(headers, &TRACEPARENT)?.to_str().ok()?;
    is_traceparent(text).then(|| text.to_owned())
}

fn is_traceparent(text: &str) -> bool {
    let mut fields = text.split('-');
    let mut field = |len: usize| {
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields
            .next()
            .filter(|text| text.len() == len && text.bytes().all(lower_hex))
    };
    let (version, trace, parent, flags) = (field(2), field(32), field(16), field(2));
    let some = |id: Option<&str>| id.is_some_and(|id| id.bytes().any(|byte| byte != b'0'));
    version == Some("00") && some(trace) && some(parent) && flags.is_some() && fields.next().is_none()
}

/// The value of a header; `None` when the header is absent or repeated.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    query::single(headers.get_all(name))
}

/// The version in a header, in double quotes.
pub(super) fn version<T: FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    let tag = only(headers, name)?.to_str().ok()?;
    query::ordinal(tag.strip_prefix('"')?.strip_suffix('"')?)
}

/// The media types that `Accept` names, without those that it refuses (RFC 9110, 12.4.2: a weight of 0).
pub(super) fn accepted(request: &HttpRequest) -> Vec<String> {
    let accept = Accept::parse(request).map(|accept| accept.0).unwrap_or_default();
    let accepted = accept.iter().filter(|range| range.quality > Quality::ZERO);
    accepted.map(|range| range.item.essence_str().to_owned()).collect()
}

/// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers): quota and window of the policy `user`,
/// the remaining quota, and seconds until more is allowed.
pub(super) fn rate_limit(quota: &QuotaState) -> [(HeaderName, HeaderValue); 2] {
    let value = |text: String| HeaderValue::try_from(text).unwrap_or_else(|_| unreachable!("digits are visible ASCII"));
    let policy = format!("\"user\";q={};w={}", quota.limit, quota.window_s);
    let limit = format!("\"user\";r={};t={}", quota.remaining, quota.reset_s);
    [(RATE_LIMIT_POLICY, value(policy)), (RATE_LIMIT, value(limit))]
}

/// The head of an HTML page: it loads what its policy allows, only its own origin frames it, and it names its address to
/// no other page.
pub(super) fn page(status: StatusCode, policy: &'static str) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    for header in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        response.insert_header(header);
    }
    response
}

/// A number of seconds as a header value.
pub(super) fn seconds(n: u32) -> HeaderValue {
    HeaderValue::from(n)
}

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
            let text = value.to_str().map_err(|_| Error::header("Prefer", "is not ASCII"))?;
            for preference in text.split([',', ';']).map(str::trim) {
                let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
                if name.trim().eq_ignore_ascii_case("respond-async") {
                    patience = Self::None;
                } else if name.trim().eq_ignore_ascii_case("wait") && patience != Self::None {
                    let seconds = query::number(value.trim().trim_matches('"'));
                    let seconds = seconds.ok_or_else(|| Error::header("Prefer", "wait must be whole seconds"))?;
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
        return Err(Error::header(NAME, "is given more than once"));
    };
    let bytes = value.as_bytes();
    if !(1..=MAX_KEY).contains(&bytes.len()) || !bytes.iter().all(u8::is_ascii_graphic) {
        return Err(Error::header(NAME, "must be 1 to 255 visible ASCII characters"));
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
    use super::*;

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
    fn a_safe_request_id_is_kept_and_any_other_is_replaced() {
        assert_eq!(&*RequestId::of(&map(&[("x-request-id", "abc-1:2")])).text, "abc-1:2");
        for bad in ["", "a b", "é", "a\"b", &"x".repeat(129)] {
            let made = RequestId::of(&map(&[("x-request-id", bad)]));
            assert_ne!(&*made.text, bad);
            assert_eq!(made.header.to_str().unwrap(), &*made.text);
        }
        assert_ne!(RequestId::of(&map(&[])).text, RequestId::of(&map(&[])).text);
    }

    #[test]
    fn only_a_traceparent_of_the_standard_is_passed_on() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(traceparent(&map(&[("traceparent", good)])).as_deref(), Some(good));
        for bad in [
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-b7ad6b7169203331-01",
            "",
        ] {
            assert_eq!(traceparent(&map(&[("traceparent", bad)])), None, "{bad}");
        }
        assert_eq!(traceparent(&map(&[("traceparent", good), ("traceparent", good)])), None);
    }

    #[test]
    fn the_rate_limit_is_given_in_structured_fields() {
        let quota = QuotaState {
            allowed: true,
            limit: 60,
            window_s: 60,
            remaining: 19,
            reset_s: 3,
        };
        let [(_, policy), (_, limit)] = rate_limit(&quota);
        assert_eq!(policy, "\"user\";q=60;w=60");
        assert_eq!(limit, "\"user\";r=19;t=3");
    }
}

#[cfg(test)]
mod patience_tests {
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
