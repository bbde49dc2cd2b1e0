//! The console: pages for people, without script (DESIGN.md sections 6 and 9).
//!
//! A page is a GET, an answer is a form's POST that leads back to a page (303), which tells what happened as the store has it. Who
//! is asking: [`session`]; whether a form is ours: [`form`]; what a page looks like: [`view`]. All rules of approvals are
//! those of the surface.

pub(super) mod approvals;
pub(super) mod grants;
pub(super) mod login;
pub(super) mod news;
pub(super) mod threads;
pub(super) mod zone;

mod attempts;
mod cookies;
mod form;
pub(super) mod origin;
mod session;
mod view;

use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use maud::{Markup, html};
use sha2::{Digest, Sha256};

pub(super) use self::attempts::Attempts;
use self::session::{Visitor, visitor};
use super::State;
use super::error::Error;
use super::exchange::Exchange;
use super::headers;
use super::routes::Route;
use crate::surfaces::agents::AgentError;
use crate::surfaces::sessions::Unavailable;

/// Pages run no script, load their one style sheet and frames of ours and nothing else, post to us alone, and are shown in no frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";
/// What is shown in a frame of a page of ours loads the style sheet alone, and posts nothing.
const FRAMED: &str =
    "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'self'; base-uri 'none'";

const SECURITY: [(HeaderName, HeaderValue); 7] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    ),
];

const STYLE: &str = include_str!("view/style.css");

/// The style sheet's address has its hash: a new one is another address, so browsers may keep each for good.
static STYLE_HASH: LazyLock<String> = LazyLock::new(|| hex::encode(&Sha256::digest(STYLE)[..8]));

/// Why there is no page.
enum Turned {
    /// Nobody is logged in; with where they wanted to go.
    LogIn(String),
    /// Nobody is logged in, so what was sent was not taken.
    Lost,
    /// The browser came from another site, and so without its cookie: it is to ask once more.
    Again(String),
    /// The form is none of ours; in words.
    NotOurs(&'static str),
    /// Too many failed logins from this address; seconds to wait.
    TooMany(u32),
    /// What the edge or a surface says.
    Error(Error),
}

impl<E: Into<Error>> From<E> for Turned {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl From<Unavailable> for Error {
    fn from(_: Unavailable) -> Self {
        Self::RecordUnavailable
    }
}

pub(super) async fn index(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Console));
    exchange.finish(Ok(see(Route::ConsoleApprovals.path())))
}

pub(super) async fn style(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ConsoleStyle));
    let tag = format!("\"{}\"", *STYLE_HASH);
    let known = headers::only(request.headers(), &header::IF_NONE_MATCH);
    let known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match known {
        true => HttpResponse::NotModified(),
        false => HttpResponse::Ok(),
    };
    for (name, value) in SECURITY {
        response.insert_header((name, value));
    }
    response.insert_header((
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/css; charset=utf-8"),
    ));
    response.insert_header((
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    ));
    response.insert_header((header::ETAG, tag));
    exchange.finish(Ok(match known {
        // Bytes after its head would be read as the next answer (RFC 9110 section 15.4.5).
        true => response.finish(),
        false => response.body(STYLE),
    }))
}

/// A whole page.
fn page(status: StatusCode, visitor: Option<&Visitor>, title: &str, body: &Markup) -> HttpResponse {
    let mut response = secured(status);
    if let Some(cookie) = visitor.and_then(|visitor| visitor.new_cookie.clone()) {
        response.insert_header((header::SET_COOKIE, cookie));
    }
    response.body(view::page(visitor, title, &STYLE_HASH, body).into_string())
}

/// Leads on to another page of the console, by GET.
fn see(path: &str) -> HttpResponse {
    let mut response = secured(StatusCode::SEE_OTHER);
    if let Ok(path) = HeaderValue::from_str(path) {
        response.insert_header((header::LOCATION, path));
    }
    response.finish()
}

fn secured(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    for header in SECURITY {
        response.insert_header(header);
    }
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    response
}

/// A path below `/console` that is no page.
pub(super) async fn unknown(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, None);
    let answer = Err(Error::NoRoute.into());
    exchange.finish(Ok(told(&state, &request, answer).await))
}

/// A path of the console that has no such method.
pub(super) async fn wrong_method(state: Data<State>, request: HttpRequest, route: Route) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(route));
    let allow = route.allow();
    let answer = Err(Error::MethodNotAllowed(allow.clone()).into());
    let mut response = told(&state, &request, answer).await;
    if let Ok(allow) = HeaderValue::from_str(&allow) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    exchange.finish(Ok(response))
}

/// The page, or why there is none. A page that says why has the navigation of whoever asked.
async fn told(state: &State, request: &HttpRequest, answer: Result<HttpResponse, Turned>) -> HttpResponse {
    let turned = match answer {
        Ok(response) => return response,
        Err(turned) => turned,
    };
    match turned {
        Turned::LogIn(next) => see(&login::address(&next)),
        Turned::Lost => see(&login::address_of_lost()),
        Turned::Again(path) => {
            let mut response = secured(StatusCode::OK);
            response.body(view::again(&path, &STYLE_HASH).into_string())
        }
        Turned::NotOurs(words) => {
            let body = view::trouble("Nothing was done", words, &[]);
            page(StatusCode::FORBIDDEN, None, "Nothing was done", &body)
        }
        Turned::TooMany(seconds) => {
            let words = format!("There were too many failed logins from your address. Try again in {seconds} seconds.");
            let body = view::trouble("Wait a little", &words, &[]);
            let mut response = page(StatusCode::TOO_MANY_REQUESTS, None, "Wait a little", &body);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, headers::seconds(seconds));
            response
        }
        Turned::Error(error) => {
            // Without it where nobody is logged in, or nobody can say so now.
            let visitor = visitor(state, request).await.ok();
            trouble(error, visitor.as_ref())
        }
    }
}

/// An error as a page.
fn trouble(error: Error, visitor: Option<&Visitor>) -> HttpResponse {
    let title = match &error {
        Error::NoRoute | Error::NotFound | Error::Agent(AgentError::NotFound) => "Not found",
        Error::Invalid(_) | Error::Agent(AgentError::Invalid(_)) => "That does not fit",
        _ => "That did not work",
    };
    let (status, words, errors, later) = error.in_words();
    let words = match title {
        "Not found" => "There is no such page, or it belongs to another user.".into(),
        "That does not fit" => "Nothing was done.".into(),
        _ => words,
    };
    let mut response = page(status, visitor, title, &view::trouble(title, &words, &errors));
    if let Some(later) = later {
        response.headers_mut().insert(header::RETRY_AFTER, later);
    }
    response
}

/// Nothing to see: for lists without rows.
fn nothing(words: &str) -> Markup {
    html! { p.empty { (words) } }
}
