//! The headers of responses. A handler names those that it sets; this table describes each once.

use serde_json::{Value, json};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::openapi::{Header, Object, RefOr, Type};

/// On every response.
const REQUEST_ID: &str = "X-Request-Id";
/// On every 401.
pub(super) const AUTHENTICATE: &str = "WWW-Authenticate";
/// On every 405.
pub(super) const ALLOW: &str = "Allow";
/// On problems that pass by themselves.
pub(super) const RETRY_AFTER: &str = "Retry-After";

/// Describes the headers that the response has by name, and adds the request id.
pub(super) fn describe(response: &mut Response) {
    response
        .headers
        .insert(REQUEST_ID.to_owned(), RefOr::T(Header::default()));
    for (name, header) in &mut response.headers {
        if let Some((schema, about, example)) = known(name) {
            let described = HeaderBuilder::new()
                .schema(Some(schema.build()))
                .description(Some(about))
                .example(Some(example));
            *header = RefOr::T(described.build());
        }
    }
}

/// Schema, meaning and example of a header.
fn known(name: &str) -> Option<(ObjectBuilder, &'static str, Value)> {
    let string = || Object::builder().schema_type(Type::String);
    let seconds = Object::builder().schema_type(Type::Integer).minimum(Some(1));
    Some(match name {
        REQUEST_ID => (
            string(),
            "The request id: yours, or a generated one.",
            json!("0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f"),
        ),
        AUTHENTICATE => (string(), "How to authenticate.", json!("Bearer realm=\"gavel\"")),
        ALLOW => (string(), "The methods this route supports.", json!("GET, HEAD")),
        RETRY_AFTER => (seconds, "Seconds to wait before a retry.", json!(1)),
        "RateLimit-Policy" => (
            string(),
            "The quota `user`: `q` requests in `w` seconds (draft-ietf-httpapi-ratelimit-headers). Absent on replays.",
            json!("\"user\";q=60;w=60"),
        ),
        "RateLimit" => (
            string(),
            "What remains of it: `r` requests now, `t` seconds until there are more. Absent on replays.",
            json!("\"user\";r=19;t=1"),
        ),
        "Idempotency-Replayed" => (
            string(),
            "`true` when this is the stored response of an earlier request with the same key.",
            json!("true"),
        ),
        "Location" => (
            string(),
            "The path of the run or the planning session, or of the page to load.",
            json!("/api/runs/0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f"),
        ),
        "Preference-Applied" => (
            string(),
            "The part of `Prefer` that had an effect; absent without one.",
            json!("respond-async"),
        ),
        "ETag" => (
            string(),
            "The version, for `If-Match`; absent for an agent from a file.",
            json!("\"3\""),
        ),
        _ => return None,
    })
}
