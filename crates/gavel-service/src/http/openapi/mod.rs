//! The OpenAPI 3.1 description of the API, generated from the code: an operation from the `#[utoipa::path]` beside its
//! handler, schemas from the types that are sent, and codes and statuses from the error table. [`document`] adds what
//! all operations have in common, so no handler repeats it.

mod answer_headers;
pub(super) mod lines;
pub(super) mod params;
pub(super) mod problems;
pub(super) mod schemas;

use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{InfoBuilder, License, OpenApi, RefOr};

use super::error::Code;
use super::route::{Method, Route};
use super::routes::{Described, table};
use super::spelling::Spelling;
use crate::http::about::About;

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
    components.schemas.values_mut().for_each(schemas::open);
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
            answer_headers::describe(response);
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

#[cfg(test)]
mod tests;
