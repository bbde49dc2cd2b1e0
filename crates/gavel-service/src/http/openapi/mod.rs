//! The OpenAPI 3.1 description of the API, generated from the code: an operation from the `#[utoipa::path]` beside its
//! handler, schemas from the types that are sent, and codes and statuses from the error table. [`document`] adds what
//! all operations have in common, so no handler repeats it.

pub(super) mod lines;
pub(super) mod params;
pub(super) mod problems;

use serde_json::{Value, json};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{AdditionalProperties, AllOf, AnyOf, ArrayItems, ObjectBuilder, OneOf, SchemaType};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Header, InfoBuilder, License, Object, OpenApi, RefOr, Schema, Type};
use utoipa::{OpenApi as _, PartialSchema, ToSchema};

use super::about::About;
use super::error::Code;
use super::route::{Method, Route};
use super::routes::{Described, table};
use super::spelling::Spelling;

const ABOUT: &str = "gavel turns chat messages into typed, logged decisions.\n\n\
    Every chat message, trigger and message in a thread leaves one decision in the decision log, even if it was refused, \
    shed, timed out or failed. A request answered with 400, 401, 403, 404, 413 or 415 leaves none, nor does a repeated \
    `Idempotency-Key`; 503 `record_unavailable` means that nothing was done, and 500 `outcome_unrecorded` that the \
    decision log may lack the outcome. Problems are documents of RFC 9457. `HEAD` works where `GET` does. Every \
    response carries `X-Request-Id`. A request that is not valid HTTP (a malformed head, two lengths, headers over 128 KiB) is \
    answered with 400, 408 or 431 without a body, and the connection is closed.";

/// The complete document.
#[must_use]
pub fn document() -> OpenApi {
    let mut document = Described::openapi();
    let mut schemas = Vec::new();
    document.info = InfoBuilder::new()
        .title("gavel")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(format!("{ABOUT}\n\n## Codes\n\n{}", codes())))
        .license(Some(License::new(env!("CARGO_PKG_LICENSE"))))
        .build();
    for entry in table() {
        let route = &entry.route;
        if let Some(operation) = operation(&mut document, route) {
            (entry.describe)(&mut About {
                operation,
                schemas: &mut schemas,
                route,
            });
            complete(operation, Spelling::of(Some(route)));
        }
    }
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
    components.schemas.values_mut().for_each(open);
    components.add_security_scheme(BEARER, bearer());
    components.add_security_scheme(API_KEY, api_key());
    document.security = Some(security());
    document.tags = Some(tags());
    document
}

/// The operation of a route; none for the console, whose pages and forms are for people.
fn operation<'a>(document: &'a mut OpenApi, route: &Route) -> Option<&'a mut Operation> {
    let item = document.paths.paths.get_mut(route.path)?;
    let operation = match route.method {
        Method::Get => &mut item.get,
        Method::Post => &mut item.post,
        Method::Put => &mut item.put,
        Method::Delete => &mut item.delete,
    };
    operation.as_mut()
}

/// Adds what a handler only names or what every operation has: problems, headers, the request id.
fn complete(operation: &mut Operation, spelling: Spelling) {
    // A summary is the first sentence of the handler's comment, and a title here.
    operation.summary = operation
        .summary
        .take()
        .map(|summary| summary.trim_end_matches('.').to_owned());
    let parameters = operation.parameters.get_or_insert_default();
    parameters.push(RefOr::T(params::request_id().build()));
    parameters.iter_mut().for_each(params::without_format);
    problems::expand(operation, spelling);
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            describe(response);
        }
    }
}

/// The closed list of codes, as a table.
fn codes() -> String {
    let rows = Code::ALL.iter().map(|code| {
        format!(
            "| {} | `{}` | {} |\n",
            code.status(),
            code.as_str(),
            code.meaning().trim()
        )
    });
    format!(
        "| status | code | meaning |\n| --- | --- | --- |\n{}",
        rows.collect::<String>()
    )
}

const BEARER: &str = "bearer";
const API_KEY: &str = "api_key";

fn bearer() -> SecurityScheme {
    let about = "An API key of a service, or a user's JWT, depending on `auth.mode`.";
    SecurityScheme::Http(
        Http::builder()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(about))
            .build(),
    )
}

fn api_key() -> SecurityScheme {
    let about = "An API key of a service, with `auth.mode = api_key`.";
    SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description("X-Api-Key", about)))
}

/// Either scheme, or none with `auth.mode = none`.
fn security() -> Vec<SecurityRequirement> {
    let by = |scheme: &str| SecurityRequirement::new(scheme, Vec::<String>::new());
    vec![SecurityRequirement::default(), by(BEARER), by(API_KEY)]
}

fn tags() -> Vec<utoipa::openapi::Tag> {
    let tag = |name: &str, about: &str| TagBuilder::new().name(name).description(Some(about)).build();
    vec![
        tag("chat", "One message, one decision."),
        tag("agents", "Declared agents: definitions and their versions."),
        tag("runs", "Runs of agents: trigger, watch, cancel, resume."),
        tag(
            "threads",
            "Stored conversations with an agent that requests approval before it acts.",
        ),
        tag("approvals", "Approval requests, in-doubt actions and grants."),
        tag(
            "planning sessions",
            "A goal, a repository and a deadline: gavel proposes a plan, and changes it in conversation.",
        ),
        tag("record", "Decisions and tool calls, for analysts."),
        tag("health", "For operators and probes. Open: no credentials are required."),
        tag(
            "accounts",
            "For browsers that Google redirects. Open: no credentials are required.",
        ),
        tag("reference", "This description. Open: no credentials are required."),
    ]
}

// Schemas that belong to no route: parts of a problem, pages of lists, documents.

/// States that objects without described fields have any fields, which generators of TypeScript clients would
/// otherwise refuse.
fn open(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            let types = match &object.schema_type {
                SchemaType::Type(only) => std::slice::from_ref(only),
                SchemaType::Array(types) => types.as_slice(),
                SchemaType::AnyValue => &[],
            };
            if types.contains(&Type::Object) && object.properties.is_empty() {
                let any = || Box::new(AdditionalProperties::FreeForm(true));
                object.additional_properties.get_or_insert_with(any);
            }
            object.properties.values_mut().for_each(open);
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                open(items);
            }
        }
        Schema::OneOf(OneOf { items, .. })
        | Schema::AllOf(AllOf { items, .. })
        | Schema::AnyOf(AnyOf { items, .. }) => {
            items.iter_mut().for_each(open);
        }
        _ => {}
    }
}

/// The closed list of codes.
impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let codes = Object::builder().schema_type(Type::String);
        codes
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

impl ToSchema for Code {
    fn name() -> std::borrow::Cow<'static, str> {
        "ProblemCode".into()
    }
}

/// A JSON Schema.
#[derive(ToSchema)]
#[schema(value_type = Object)]
#[expect(dead_code, reason = "describes a document that is sent as text")]
pub(crate) struct JsonSchema(Value);

/// An OpenAPI description.
#[derive(ToSchema)]
#[schema(value_type = Object, as = OpenApi)]
#[expect(dead_code, reason = "describes a document that is sent as text")]
pub(crate) struct Description(Value);

// The headers of responses. A handler names those that it sets; this table describes each once.

/// On every response.
const REQUEST_ID: &str = "X-Request-Id";
/// On every 401.
const AUTHENTICATE: &str = "WWW-Authenticate";
/// On every 405.
const ALLOW: &str = "Allow";
/// On problems that pass by themselves.
const RETRY_AFTER: &str = "Retry-After";

/// Describes the headers that the response has by name, and adds the request id.
fn describe(response: &mut Response) {
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

#[cfg(test)]
mod tests;
