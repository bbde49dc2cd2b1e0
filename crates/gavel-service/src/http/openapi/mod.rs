//! The OpenAPI 3.1 description of the API, generated from the code: an operation from the `#[utoipa::path]` beside its
//! handler, schemas from the types that are sent, and codes and statuses from the error table. [`document`] adds what
//! all operations have in common, so no handler repeats it.

pub(super) mod lines;

use std::collections::BTreeMap;

use actix_web::http::Method;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{AdditionalProperties, AllOf, AnyOf, ArrayItems, ObjectBuilder, OneOf, SchemaType};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{Content, Header, InfoBuilder, License, Object, OpenApi, Ref, RefOr, Required, Schema, Type};

use crate::http::error::{AgentProblem, Code, Problem};
use crate::http::routes::{Entry, Route, description, table, tags};
use crate::http::spelling::Spelling;

const ABOUT: &str = "gavel turns chat messages into typed, logged decisions.\n\n\
    Every chat message, trigger and message in a thread leaves one decision in the decision log, even if it was refused, \
    shed, timed out or failed. A request answered with 400, 401, 403, 404, 413 or 415 leaves none, nor does a repeated \
    `Idempotency-Key`; 503 `record_unavailable` means that nothing was done, and 500 `outcome_unrecorded` that the \
    decision log may lack the outcome. Problems are documents of RFC 9457. `HEAD` works where `GET` does. Every \
    response carries `X-Request-Id`. A request that is not valid HTTP (a malformed head, two lengths, headers over 128 KiB) is \
    answered with 400, 408 or 431 without a body, and the connection is closed.";

/// Problems of a request with a body.
const PROBLEMS_OF_BODIES: [Code; 4] = [
    Code::RequestTimeout,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::Overloaded,
];

/// An operation of the API description.
pub(super) struct About<'a> {
    pub(super) operation: &'a mut Operation,
    /// Schemas that it refers to, by name.
    pub(super) schemas: &'a mut Vec<(String, RefOr<Schema>)>,
    pub(super) route: &'static Route,
    problems: Vec<Code>,
}

impl About<'_> {
    pub(super) fn parameter(&mut self, parameter: impl Into<Parameter>) {
        let parameters = self.operation.parameters.get_or_insert_default();
        parameters.push(RefOr::T(parameter.into()));
    }

    pub(super) fn problems(&mut self, codes: &[Code]) {
        self.problems.extend(codes);
    }

    pub(super) fn schema<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(self.schemas);
        Ref::from_schema_name(T::name())
    }

    pub(super) fn response(&mut self, status: &str) -> Option<&mut Response> {
        match self.operation.responses.responses.get_mut(status)? {
            RefOr::T(response) => Some(response),
            RefOr::Ref(_) => None,
        }
    }

    /// Completes the responses that a route names, or one of 200: each has a body of this type unless it has another,
    /// and these headers.
    pub(super) fn answers<T: ToSchema>(&mut self, headers: &[&str]) {
        let schema = self.schema::<T>();
        self.contents(&["application/json"], &Content::new(Some(schema)));
        self.headers(headers);
    }

    /// Adds headers, which are described elsewhere, to all responses that a route names.
    pub(super) fn headers(&mut self, headers: &[&str]) {
        for response in self.operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                let named = headers
                    .iter()
                    .map(|name| ((*name).to_owned(), RefOr::T(Header::default())));
                response.headers.extend(named);
            }
        }
    }

    /// Gives content to the responses that have a body and none yet.
    pub(super) fn contents(&mut self, media: &[&str], content: &Content) {
        let responses = &mut self.operation.responses.responses;
        if responses.is_empty() {
            let response = ResponseBuilder::new().description("The response.").build();
            responses.insert("200".to_owned(), RefOr::T(response));
        }
        for (status, response) in responses {
            if let RefOr::T(response) = response
                && response.content.is_empty()
                && status != "204"
            {
                let content = media
                    .iter()
                    .map(|media| ((*media).to_owned(), RefOr::T(content.clone())));
                response.content.extend(content);
            }
        }
    }

    /// The JSON body of the request.
    pub(super) fn json<T: ToSchema>(&mut self, about: &str, example: &str, is_required: bool) {
        let schema = self.schema::<T>();
        let example: Value = serde_json::from_str(example).unwrap_or_else(|error| unreachable!("{example}: {error}"));
        let content = ContentBuilder::new().schema(Some(schema)).example(Some(example));
        let body = RequestBodyBuilder::new()
            .description(Some(about))
            .content("application/json", content.build())
            .required(is_required.then_some(Required::True));
        self.body(body);
    }

    /// The body of the request.
    pub(super) fn body(&mut self, body: RequestBodyBuilder) {
        self.operation.request_body = Some(RefOr::T(body.build()));
        self.problems(&PROBLEMS_OF_BODIES);
    }
}

/// The complete document.
pub fn document() -> OpenApi {
    let mut document = description();
    let mut schemas = Vec::new();
    document.info = InfoBuilder::new()
        .title("gavel")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(format!("{ABOUT}\n\n## Codes\n\n{}", codes())))
        .license(Some(License::new(env!("CARGO_PKG_LICENSE"))))
        .build();
    for Entry { route, operation, .. } in table() {
        let item = document.paths.paths.get_mut(route.path);
        let place = item.and_then(|item| match route.method {
            Method::POST => item.post.as_mut(),
            Method::PUT => item.put.as_mut(),
            Method::DELETE => item.delete.as_mut(),
            _ => item.get.as_mut(),
        });
        if let (Some(of), Some(operation)) = (operation, place) {
            operation.operation_id = Some(of.id.to_owned());
            operation.tags = Some(vec![of.tag.to_owned()]);
            let mut about = About {
                operation,
                schemas: &mut schemas,
                route,
                problems: of.problems.to_vec(),
            };
            (of.describe)(&mut about);
            about.complete();
        }
    }
    let components = document.components.get_or_insert_default();
    for (name, schema) in schemas {
        let known = components.schemas.insert(name.clone(), schema);
        debug_assert!(
            known.is_none_or(|known| json!(known) == json!(components.schemas[&name])),
            "two schemas are named {name}"
        );
    }
    components.schemas.values_mut().for_each(open);
    components.add_security_scheme(BEARER, bearer());
    components.add_security_scheme(API_KEY, api_key());
    document.security = Some(security());
    let tag = |(name, about)| TagBuilder::new().name(name).description(Some(about)).build();
    document.tags = Some(tags().map(tag).collect());
    document
}

impl About<'_> {
    /// Adds what a handler only names or what every operation has: problems, headers, the request id.
    fn complete(mut self) {
        self.problems(&[Code::MethodNotAllowed]);
        self.describe_problems();
        // A summary is the first sentence of the handler's comment, and a title here.
        let summary = self.operation.summary.take();
        self.operation.summary = summary.map(|summary| summary.trim_end_matches('.').to_owned());
        self.parameter(request_id());
        for response in self.operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                describe(response);
            }
        }
    }

    /// Describes the problems by their status. One that also has a response of its own gets both contents.
    fn describe_problems(&mut self) {
        let spelling = Spelling::of(Some(self.route));
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in Code::ALL.iter().filter(|code| self.problems.contains(code)) {
            by_status.entry(code.status()).or_default().push(*code);
        }
        let responses = &mut self.operation.responses.responses;
        for (status, codes) in by_status {
            let problem = problem(spelling, status, &codes);
            let merged = match responses.remove(&status.to_string()) {
                Some(RefOr::T(own)) => merge(own, problem),
                _ => problem,
            };
            responses.insert(status.to_string(), RefOr::T(merged));
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
        if let Some((about, example)) = known(name) {
            let schema = if name == RETRY_AFTER { whole(1) } else { string() };
            let described = HeaderBuilder::new()
                .schema(Some(schema.build()))
                .description(Some(about))
                .example(Some(example));
            *header = RefOr::T(described.build());
        }
    }
}

/// Meaning and example of a header.
fn known(name: &str) -> Option<(&'static str, Value)> {
    Some(match name {
        REQUEST_ID => (
            "The request id: yours, or a generated one.",
            json!("0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f"),
        ),
        AUTHENTICATE => ("How to authenticate.", json!("Bearer realm=\"gavel\"")),
        ALLOW => ("The methods this route supports.", json!("GET, HEAD")),
        RETRY_AFTER => ("Seconds to wait before a retry.", json!(1)),
        "RateLimit-Policy" => (
            "The quota `user`: `q` requests in `w` seconds (draft-ietf-httpapi-ratelimit-headers). Absent on replays.",
            json!("\"user\";q=60;w=60"),
        ),
        "RateLimit" => (
            "What remains of it: `r` requests now, `t` seconds until there are more. Absent on replays.",
            json!("\"user\";r=19;t=1"),
        ),
        "Idempotency-Replayed" => (
            "`true` when this is the stored response of an earlier request with the same key.",
            json!("true"),
        ),
        "Location" => (
            "The path of the run or the planning session, or of the page to load.",
            json!("/api/runs/0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f"),
        ),
        "Preference-Applied" => (
            "The part of `Prefer` that had an effect; absent without one.",
            json!("respond-async"),
        ),
        "X-Gavel-Export" => (
            "The id of the export, whose manifest is at `/v1/exports/{id}` once it has ended.",
            json!("0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f"),
        ),
        "ETag" => (
            "The version, for `If-Match`; absent for an agent from a file.",
            json!("\"3\""),
        ),
        _ => return None,
    })
}

/// A header that may be absent.
pub(crate) fn header(name: &str, about: &str, schema: ObjectBuilder) -> ParameterBuilder {
    Parameter::builder()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(schema))
}

/// A segment of a path.
pub(crate) fn segment(name: &str, about: &str) -> ParameterBuilder {
    header(name, about, string())
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
}

/// A parameter of a query that may be absent; it is named where it is read.
pub(crate) fn in_query(about: &str, schema: ObjectBuilder) -> ParameterBuilder {
    header("", about, schema).parameter_in(ParameterIn::Query)
}

/// A whole number.
pub(crate) fn whole(minimum: u32) -> ObjectBuilder {
    Object::builder().schema_type(Type::Integer).minimum(Some(minimum))
}

/// Any text.
pub(crate) fn string() -> ObjectBuilder {
    Object::builder().schema_type(Type::String)
}

/// A text of at least one character.
fn visible(most: usize) -> ObjectBuilder {
    let pattern = format!("^[!-~]{{1,{most}}}$");
    string()
        .min_length(Some(1))
        .max_length(Some(most))
        .pattern(Some(pattern))
}

/// The acting user. Non-ASCII letters are accepted as UTF-8, which the schema of a header cannot express.
pub(crate) fn user(about: &str) -> ParameterBuilder {
    header("X-Gavel-User", about, visible(256))
}

/// The idempotency key.
pub(crate) fn key(about: &str) -> ParameterBuilder {
    header("Idempotency-Key", about, visible(255))
}

/// The id of a request; of every operation.
fn request_id() -> ParameterBuilder {
    let about = "Your id for this request, 1 to 128 letters, digits or `-_.:~+/=`; any other value is replaced. The response\n\
                 repeats it.";
    header("X-Request-Id", about, string())
}

/// What `filter` of a list with these fields accepts.
pub(crate) fn filter(fields: &str) -> String {
    format!(
        "Conditions joined by `AND` or `OR`, with parentheses and `NOT`: field, `=`, `!=`, `<`, `<=`, `>`, `>=` or `:` \
         (has), value. Strings are in double quotes; one that ends in `*` is a prefix. Fields: {fields}."
    )
}

fn merge(mut own: Response, problem: Response) -> Response {
    own.description = format!("{} Or a problem. {}", own.description, problem.description);
    own.headers.extend(problem.headers);
    own.content.extend(problem.content);
    own
}

/// The response of all codes that share `status`.
fn problem(spelling: Spelling, status: u16, codes: &[Code]) -> Response {
    let about = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), code.meaning().trim()));
    let mut response = Response::new(about.collect::<Vec<_>>().join(" "));
    for (name, is_set) in [
        (RETRY_AFTER, codes.iter().any(|code| code.retry_after_s().is_some())),
        (AUTHENTICATE, codes.contains(&Code::Unauthenticated)),
        (ALLOW, codes.contains(&Code::MethodNotAllowed)),
    ] {
        if is_set {
            response.headers.insert(name.to_owned(), RefOr::T(Header::default()));
        }
    }
    let schema = match spelling {
        Spelling::Snake => Problem::name(),
        Spelling::Camel => AgentProblem::name(),
    };
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .example(codes.first().map(|code| example(spelling, status, *code)));
    response
        .content
        .insert("application/problem+json".to_owned(), RefOr::T(content.build()));
    response
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
    example[spelling.name("request_id")] = "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f".into();
    if spelling == Spelling::Camel {
        example["errorClass"] = json!(code.class());
    }
    example
}

#[cfg(test)]
mod tests;
