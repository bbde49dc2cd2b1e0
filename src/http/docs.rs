//! The API's reference: `/openapi.json`, and `/docs`, whose assets are in the binary.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use bytes::Bytes;
use utoipa_swagger_ui::Config;

use super::error::Error;
use super::exchange::Exchange;
use super::routes::Route;
use super::{State, headers, openapi};

/// Pages load from here and from nowhere else, run no script of their own text, and are shown in no frame.
/// Swagger UI sets style attributes and draws its icons from data URLs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SECURITY: [(HeaderName, HeaderValue); 4] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The page around Swagger UI; its assets stand beside it.
const PAGE: &str = include_str!("docs.html");

/// The document as text, printed when it is asked for first, and the assets' settings. Printing it takes more memory than all that a
/// service holds that nobody asks anything.
pub(super) struct Docs {
    openapi: OnceLock<Bytes>,
    ui: Arc<Config<'static>>,
}

impl Docs {
    pub(super) fn new() -> Self {
        // Without a validator Swagger UI would ask one on the internet about this document.
        let ui = Config::from(Route::OpenApi.path())
            .validator_url("none")
            .try_it_out_enabled(true);
        Self {
            openapi: OnceLock::new(),
            ui: Arc::new(ui),
        }
    }

    fn openapi(&self) -> Bytes {
        let print = || {
            let text = openapi::document().to_json();
            Bytes::from(text.unwrap_or_else(|error| unreachable!("the document prints as JSON: {error}")))
        };
        self.openapi.get_or_init(print).clone()
    }
}

pub(super) async fn openapi(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::OpenApi));
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, headers::JSON));
    exchange.finish(Ok(response.body(state.docs.openapi())))
}

pub(super) async fn index(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Docs));
    let mut response = secured();
    response.insert_header((header::CONTENT_TYPE, HTML));
    exchange.finish(Ok(response.body(PAGE)))
}

pub(super) async fn asset(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::DocsAsset));
    exchange.finish(file(&state.docs, &request))
}

/// People who try the address in a browser land on the reference.
pub(super) async fn root(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Root));
    let mut response = HttpResponse::TemporaryRedirect();
    response.insert_header((header::LOCATION, HeaderValue::from_static(Route::Docs.path())));
    exchange.finish(Ok(response.finish()))
}

/// Only what the page loads is served; the package has more.
const ASSETS: [&str; 5] = [
    "swagger-ui.css",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-initializer.js",
    "favicon-32x32.png",
];

fn file(docs: &Docs, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let name = request.match_info().get("asset").unwrap_or_default();
    if !ASSETS.contains(&name) {
        return Err(Error::NotFound);
    }
    let file = utoipa_swagger_ui::serve(name, Arc::clone(&docs.ui)).map_err(|error| {
        tracing::error!(%error, name, "an asset of the reference could not be made");
        Error::Internal
    })?;
    let file = file.ok_or(Error::NotFound)?;
    let mut response = secured();
    response.insert_header((header::CONTENT_TYPE, file.content_type));
    // They are never packed (the package's feature `gzip` is off), so every client can read them.
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")));
    Ok(response.body(match file.bytes {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    }))
}

fn secured() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    for header in SECURITY {
        response.insert_header(header);
    }
    response
}
