//! Request and response headers.

use std::fmt::Write;
use std::sync::Arc;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use bytes::{Bytes, BytesMut};
use uuid::Uuid;

use crate::surfaces::chat::QuotaState;

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
        let given = headers.get(REQUEST_ID).and_then(|value| {
            let text = value.to_str().ok()?;
            is_safe(text).then(|| (Arc::from(text), value.clone()))
        });
        let (text, header) = given.unwrap_or_else(made);
        Self { text, header }
    }
}

fn is_safe(text: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:~+/=".contains(&byte);
    (1..=MAX_REQUEST_ID).contains(&text.len()) && text.bytes().all(safe)
}

fn made() -> (Arc<str>, HeaderValue) {
    let mut buffer = Uuid::encode_buffer();
    let text: &str = Uuid::now_v7().as_hyphenated().encode_lower(&mut buffer);
    let header = HeaderValue::from_str(text).unwrap_or_else(|_| unreachable!("a UUID is visible ASCII"));
    (Arc::from(text), header)
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
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() { None } else { first }
}

/// Whether a range of an `Accept` header is refused (RFC 9110, 12.4.2: a weight of 0).
pub(super) fn is_refused(range: &str) -> bool {
    range.split(';').skip(1).any(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or_default();
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0)
    })
}

/// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers): quota and window of the policy `user`,
/// the remaining quota, and seconds until more is allowed.
pub(super) fn rate_limit(quota: &QuotaState) -> [(HeaderName, HeaderValue); 2] {
    let QuotaState {
        limit,
        window_s,
        remaining,
        reset_s,
        ..
    } = quota;
    [
        (
            RATE_LIMIT_POLICY,
            value(format_args!("\"user\";q={limit};w={window_s}")),
        ),
        (RATE_LIMIT, value(format_args!("\"user\";r={remaining};t={reset_s}"))),
    ]
}

/// A number of seconds as a header value.
pub(super) fn seconds(n: u32) -> HeaderValue {
    HeaderValue::from(n)
}

fn value(text: std::fmt::Arguments<'_>) -> HeaderValue {
    let mut bytes = BytesMut::with_capacity(48);
    // Writing to BytesMut cannot fail below usize::MAX bytes.
    let _ = bytes.write_fmt(text);
    HeaderValue::from_maybe_shared(Bytes::from(bytes)).unwrap_or_else(|_| unreachable!("digits are visible ASCII"))
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
