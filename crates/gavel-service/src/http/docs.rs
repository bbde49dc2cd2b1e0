//! The API reference: `/openapi.json`, and `/docs`, whose assets are part of the binary.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use bytes::Bytes;
use serde_json::Value;
use utoipa_swagger_ui::Config;

use super::error::{Code, Error};
use super::headers;
use super::openapi::{Description, JsonSchema, document};
use super::request::{Id, Named, Open};
use super::routes::{Path, operations};
use crate::domain::definition::{json_schema, json_schema_of_front_matter};

operations! {
    getAgentSchema = schema: [];
    getOpenApi = openapi: [];
    showDocs = index: [];
    getDocsAsset = asset: [Internal];
    getRoot = root: [];
}

/// Pages load only from this origin, run no inline script, and cannot be framed. Swagger UI sets style attributes and
/// uses data URLs for its icons.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page that loads Swagger UI and its assets.
const PAGE: &str = include_str!("docs.html");

/// The OpenAPI document as text. It is built at the first request, because building it takes more memory than an idle
/// service uses.
static OPENAPI: LazyLock<Bytes> = LazyLock::new(|| {
    let text = document().to_json();
    Bytes::from(text.unwrap_or_else(|error| unreachable!("the document serializes to JSON: {error}")))
});

/// The settings of the assets.
static UI: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    // Without this setting Swagger UI sends the document to a validator on the internet.
    let ui = Config::from("/openapi.json").validator_url("none");
    Arc::new(ui.try_it_out_enabled(true))
});

/// This description.
///
/// OpenAPI 3.1.
#[utoipa::path(
    get,
    path = "/openapi.json",
    responses((status = 200, description = "The response.", body = Description))
)]
pub(super) async fn openapi(_: Open) -> Result<HttpResponse, Error> {
    let json = (header::CONTENT_TYPE, headers::JSON);
    Ok(HttpResponse::Ok().insert_header(json).body(OPENAPI.clone()))
}

/// JSON Schema of a definition, for editors.
///
/// For the JSON and YAML forms, and for Markdown front matter. Open: no credentials are required.
#[utoipa::path(
    get,
    path = "/schemas/{schema}",
    responses((
        status = 200,
        description = "The schema.",
        content_type = "application/schema+json",
        body = JsonSchema
    ))
)]
pub(super) async fn schema(_: Open, Id(SchemaFile(schema)): Id<SchemaFile>) -> Result<HttpResponse, Error> {
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "application/schema+json"))
        .insert_header((header::CACHE_CONTROL, "max-age=3600"))
        .body(schema().to_string()))
}

/// A schema of a definition.
pub(super) struct SchemaFile(fn() -> Value);

impl Named for SchemaFile {
    const SEGMENTS: &'static [(&'static str, &'static str)] =
        &[("schema", "`agent.schema.json` or `agent-front-matter.schema.json`.")];
    const MISSING: &'static str = "There is no schema {schema}.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        match path.get("schema") {
            "agent.schema.json" => Some(Self(json_schema)),
            "agent-front-matter.schema.json" => Some(Self(json_schema_of_front_matter)),
            _ => None,
        }
    }
}

/// This description as an interactive page.
///
/// Loads nothing from other hosts.
#[utoipa::path(
    get,
    path = "/docs",
    responses((status = 200, description = "The text.", body = String, content_type = "text/html"))
)]
pub(super) async fn index(_: Open) -> Result<HttpResponse, Error> {
    Ok(headers::page(StatusCode::OK, POLICY).body(PAGE))
}

/// A file of the description's page.
///
/// Compiled in.
#[utoipa::path(
    get,
    path = "/docs/{asset}",
    responses((status = 200, description = "The file.", content(("text/css"), ("text/javascript"), ("image/png"))))
)]
pub(super) async fn asset(_: Open, Id(Asset(name)): Id<Asset>) -> Result<HttpResponse, Error> {
    let file = utoipa_swagger_ui::serve(name, Arc::clone(&UI)).map_err(|error| {
        tracing::error!(%error, name, "an asset of the API reference could not be built");
        Code::Internal
    })?;
    let file = file.ok_or(Code::NotFound)?;
    let mut response = headers::page(StatusCode::OK, POLICY);
    response.insert_header((header::CONTENT_TYPE, file.content_type));
    // Assets are never compressed (the package's feature `gzip` is off), so every client can read them.
    response.insert_header((header::CACHE_CONTROL, "public, max-age=3600"));
    Ok(response.body(match file.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    }))
}

/// Redirects to the description.
///
/// For people who open the address in a browser.
#[utoipa::path(
    get,
    path = "/",
    responses((status = 307, description = "Redirects to `/docs`.", headers(("Location"))))
)]
pub(super) async fn root(_: Open) -> Result<HttpResponse, Error> {
    Ok(HttpResponse::TemporaryRedirect()
        .insert_header((header::LOCATION, "/docs"))
        .finish())
}

/// Only the assets that the page loads are served; the package contains more.
const ASSETS: [&str; 5] = [
    "swagger-ui.css",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-initializer.js",
    "favicon-32x32.png",
];

pub(super) struct Asset(&'static str);

impl Named for Asset {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[("asset", "Name of a file that the page loads.")];
    const MISSING: &'static str = "There is no file {asset}.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        let name = path.get("asset");
        ASSETS.iter().find(|asset| **asset == name).map(|asset| Self(asset))
    }
}
