//! Parts that several operations share: headers, parameters, responses.

use serde_json::{Value, json};
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::openapi::{Content, Header, Object, Ref, Required, Type};

use crate::http::error::Code;
use crate::http::spelling::Spelling;

pub(super) fn string() -> ObjectBuilder {
    Object::builder().schema_type(Type::String)
}

pub(super) fn integer(minimum: i64) -> ObjectBuilder {
    Object::builder().schema_type(Type::Integer).minimum(Some(minimum))
}

/// A query parameter.
pub(super) fn query(name: &str, about: &str, schema: ObjectBuilder) -> Parameter {
    parameter(name, ParameterIn::Query, about, schema).build()
}

/// A request header.
pub(super) fn header(name: &str, about: &str, schema: ObjectBuilder) -> Parameter {
    parameter(name, ParameterIn::Header, about, schema).build()
}

fn answer_header(schema: ObjectBuilder, about: &str, example: Value) -> Header {
    HeaderBuilder::new()
        .schema(Some(schema.build()))
        .description(Some(about))
        .example(Some(example))
        .build()
}

fn parameter(name: &str, place: ParameterIn, about: &str, schema: ObjectBuilder) -> ParameterBuilder {
    let required = if matches!(place, ParameterIn::Path) {
        Required::True
    } else {
        Required::False
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(about))
        .schema(Some(schema.build()))
}

pub(super) fn request_id() -> Parameter {
    let about = "Your id for this request, 1 to 128 letters, digits or `-_.:~+/=`; any other value is replaced. The response repeats it.";
    parameter("X-Request-Id", ParameterIn::Header, about, string()).build()
}

/// `Idempotency-Key` of a route that is idempotent even without it.
pub(super) fn key_of_answer() -> Parameter {
    let key = "For 24 h another body under the same key gets 422. Repeating the request changes nothing, with or without a key, and \
               returns the current state.";
    header("Idempotency-Key", key, any_key())
}

fn any_key() -> ObjectBuilder {
    string()
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[!-~]{1,255}$"))
}

/// `Idempotency-Key`.
pub(super) fn key() -> Parameter {
    let key = "Makes a retry safe. For 24 h the same key and body return the stored response (`Idempotency-Replayed: true`), \
               another body gets 422, and while the first request is running 409. Keys of different callers, users and \
               routes are different keys.";
    parameter("Idempotency-Key", ParameterIn::Header, key, any_key()).build()
}

pub(super) fn acting() -> [Parameter; 3] {
    let trace = "W3C trace context, passed on to MCP servers; an invalid one is ignored.";
    [
        key(),
        request_id(),
        parameter("traceparent", ParameterIn::Header, trace, string()).build(),
    ]
}

/// The paging parameters of a list.
pub(super) fn paging(spelling: Spelling) -> [Parameter; 2] {
    let size = integer(1).maximum(Some(1000)).default(Some(json!(50)));
    let next = spelling.next_page_token();
    let token = format!("`{next}` of the previous page; valid only with the same filter and order.");
    [
        query(spelling.page_size(), "Rows of a page.", size),
        query(spelling.page_token(), &token, string()),
    ]
}

/// The paging, filter and order parameters of a list.
pub(super) fn listing(spelling: Spelling, fields: &str, example: &str) -> Vec<Parameter> {
    ordered(
        spelling,
        fields,
        example,
        "`created_at desc` (the default) or `created_at`.",
    )
}

/// As [`listing`], with the allowed orders.
pub(super) fn ordered(spelling: Spelling, fields: &str, example: &str, order: &str) -> Vec<Parameter> {
    let query = |name, about: &str, schema| parameter(name, ParameterIn::Query, about, schema);
    let filter = format!(
        "Conditions joined by `AND`: field, `=`, `!=`, `<`, `<=`, `>` or `>=`, value. Strings are in double quotes; one \
         that ends in `*` is a prefix. Fields: {fields}."
    );
    let own = [
        query("filter", &filter, string()).example(Some(json!(example))).build(),
        query(spelling.order_by(), order, string()).build(),
    ];
    paging(spelling).into_iter().chain(own).collect()
}

pub(super) fn path(name: &str, about: &str) -> Parameter {
    parameter(name, ParameterIn::Path, about, string()).build()
}

pub(super) fn content(schema: &str, example: Option<Value>) -> Content {
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .example(example)
        .build()
}

/// A response; every response carries the request id.
pub(super) fn response(about: impl Into<String>) -> ResponseBuilder {
    let id = answer_header(
        string(),
        "The request id: yours, or a generated one.",
        json!("0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f"),
    );
    ResponseBuilder::new().description(about).header("X-Request-Id", id)
}

/// Adds the headers of a response that counts against a quota.
pub(super) fn with_quota(response: ResponseBuilder) -> ResponseBuilder {
    let policy =
        "The quota `user`: `q` requests in `w` seconds (draft-ietf-httpapi-ratelimit-headers). Absent on replays.";
    let limit = "What remains of it: `r` requests now, `t` seconds until there are more. Absent on replays.";
    response
        .header(
            "RateLimit-Policy",
            answer_header(string(), policy, json!("\"user\";q=60;w=60")),
        )
        .header("RateLimit", answer_header(string(), limit, json!("\"user\";r=19;t=1")))
}

pub(super) fn with_replayed(response: ResponseBuilder) -> ResponseBuilder {
    let about = "`true` when this is the stored response of an earlier request with the same key.";
    response.header("Idempotency-Replayed", answer_header(string(), about, json!("true")))
}

pub(super) fn with_retry_after(response: ResponseBuilder) -> ResponseBuilder {
    response.header(
        "Retry-After",
        answer_header(integer(1), "Seconds to wait before a retry.", json!(1)),
    )
}

/// The response of all codes that share `status`.
pub(super) fn problem(spelling: Spelling, status: u16, codes: &[Code]) -> ResponseBuilder {
    let about: Vec<_> = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), code.meaning().trim()))
        .collect();
    let mut response = response(about.join(" "));
    if codes.iter().any(|code| {
        matches!(
            code,
            Code::StillRunning | Code::RecordUnavailable | Code::AuthUnavailable
        )
    }) {
        response = with_retry_after(response);
    }
    if codes.contains(&Code::Unauthenticated) {
        let about = "How to authenticate.";
        response = response.header(
            "WWW-Authenticate",
            answer_header(string(), about, json!("Bearer realm=\"gavel\"")),
        );
    }
    if codes.contains(&Code::MethodNotAllowed) {
        response = response.header(
            "Allow",
            answer_header(string(), "The methods this route supports.", json!("GET, HEAD")),
        );
    }
    response.content(
        "application/problem+json",
        content(
            spelling.problem(),
            codes.first().map(|code| example(spelling, status, *code)),
        ),
    )
}

fn example(spelling: Spelling, status: u16, code: Code) -> Value {
    let title = actix_web::http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason());
    let mut example = json!({
        "type": "about:blank",
        "title": title.unwrap_or_default(),
        "status": status,
        "detail": code.meaning().trim(),
        "code": code.as_str(),
    });
    let id = "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f";
    match spelling {
        Spelling::Snake => example["request_id"] = id.into(),
        Spelling::Camel => {
            example["requestId"] = id.into();
            example["errorClass"] = json!(code.class());
        }
    }
    example
}
