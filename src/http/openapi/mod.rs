//! The OpenAPI 3.1 description of the API, generated from the code: schemas from the types that are sent, codes and
//! statuses from the error table, and paths from the route table.

mod agents;
mod operations;
mod parts;
pub(super) mod schemas;
mod threads;

use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, License, OpenApi, OpenApiBuilder, PathItem, PathsBuilder};

use super::error::Code;
use super::routes::{Route, Verb};

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
    let info = InfoBuilder::new()
        .title("gavel")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(format!("{ABOUT}\n\n## Codes\n\n{}", codes())))
        .license(Some(License::new(env!("CARGO_PKG_LICENSE"))));
    let described = Route::ALL
        .into_iter()
        .filter_map(|route| Some((route, operations::of(route)?)));
    let paths = described.fold(PathsBuilder::new(), |paths, (route, operation)| {
        let method = match route.verb() {
            Verb::Get => utoipa::openapi::HttpMethod::Get,
            Verb::Post => utoipa::openapi::HttpMethod::Post,
            Verb::Put => utoipa::openapi::HttpMethod::Put,
            Verb::Delete => utoipa::openapi::HttpMethod::Delete,
        };
        paths.path(route.path(), PathItem::new(method, operation))
    });
    let components = schemas::all(ComponentsBuilder::new())
        .security_scheme(BEARER, bearer())
        .security_scheme(API_KEY, api_key());
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components.build()))
        .security(Some(security()))
        .tags(Some(tags()))
        .build()
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
