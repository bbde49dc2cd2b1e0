//! What every route needs of a request before its surface is called.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;
use sha2::{Digest, Sha256};

use super::REQUEST_ID;
use super::caller::Auth;
use super::error::{Code, Problem};
use crate::domain::ids::UserId;
use crate::surfaces::caller::Caller;
use crate::surfaces::chat::request::FieldError;
use crate::surfaces::chat::{Idempotency, RequestMeta};

/// The caller's `X-Request-Id`, when it is 1..=128 harmless characters, else a new one.
pub(super) fn request_id(headers: &HeaderMap) -> Arc<str> {
    let harmless = |id: &&str| {
        (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=".contains(&b))
    };
    match headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(harmless) {
        Some(id) => Arc::from(id),
        None => Arc::from(
            uuid::Uuid::now_v7()
                .as_hyphenated()
                .encode_lower(&mut uuid::Uuid::encode_buffer()) as &str,
        ),
    }
}

/// Who is asking.
pub(super) async fn caller(auth: &Auth, headers: &HeaderMap, request_id: &Arc<str>) -> Result<Caller, Problem> {
    auth.caller(headers).await.map_err(|_| {
        let detail = "send a valid key or token as `Authorization: Bearer …`";
        Problem::new(Code::Unauthenticated, detail, request_id)
    })
}

/// On whose behalf.
pub(super) fn acting_user(caller: &Caller, asked: Option<UserId>, request_id: &Arc<str>) -> Result<UserId, Problem> {
    match caller.act_for(asked) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => {
            let missing = FieldError {
                pointer: "/user_id".to_owned(),
                detail: "is missing; a string is required".to_owned(),
            };
            Err(Problem::fields(vec![missing], request_id))
        }
        Err(error) => Err(Problem::new(Code::UserMismatch, error.to_string(), request_id)),
    }
}

/// Ids, trace context and idempotency of a request on `route` with this body.
pub(super) fn meta(
    request: &HttpRequest,
    route: &str,
    caller: &Caller,
    user: &UserId,
    body: &[u8],
    request_id: &Arc<str>,
) -> Result<RequestMeta, Problem> {
    let header = |name: &str| request.headers().get(name);
    let traceparent = header("traceparent").and_then(|value| value.to_str().ok());
    let idempotency = match header("idempotency-key") {
        None => None,
        Some(key) => {
            let fits = |key: &&str| (1..=255).contains(&key.len()) && key.bytes().all(|b| (0x21..=0x7e).contains(&b));
            let key = key.to_str().ok().filter(fits).ok_or_else(|| {
                let detail = "must be 1 to 255 visible ASCII characters".to_owned();
                Problem::fields(
                    vec![FieldError {
                        pointer: "Idempotency-Key".to_owned(),
                        detail,
                    }],
                    request_id,
                )
            })?;
            let scope = [caller.tenant.as_str(), &caller.name(), user.as_str(), route, key];
            Some(Idempotency {
                scope: digest(&scope),
                fingerprint: hex(&Sha256::digest(body)),
            })
        }
    };
    let traceparent = traceparent.filter(|value| value.len() <= 128).map(str::to_owned);
    Ok(RequestMeta {
        request_id: Arc::clone(request_id),
        traceparent,
        idempotency,
    })
}

/// Each part with its length before it, so that no two lists of parts run together.
fn digest(parts: &[&str]) -> Arc<str> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> Arc<str> {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Arc::from(text)
}

/// Must say JSON: a form of another site can send text/plain without asking, never this.
pub(super) fn expect_json(request: &HttpRequest, request_id: &Arc<str>) -> Result<(), Problem> {
    let kind = request
        .headers()
        .get(actix_web::http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = kind.is_some_and(|kind| {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    });
    if is_json {
        return Ok(());
    }
    let found = kind.unwrap_or("nothing");
    Err(Problem::new(
        Code::UnsupportedMediaType,
        format!("content-type is {found:?}; application/json is allowed"),
        request_id,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_scope_do_not_run_together() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_eq!(digest(&["a"]).len(), 64);
    }
}
