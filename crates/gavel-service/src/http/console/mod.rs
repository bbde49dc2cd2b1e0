//! The console: pages for people, without script.
//!
//! A page is a GET. A decision is a form's POST that redirects to a page (303), which shows the stored outcome.
//! [`session`] identifies the visitor and verifies forms, [`view`] has what pages share. All rules of approvals are in the
//! surface.

pub(super) mod analysis;
pub(super) mod approvals;
pub(super) mod grants;
pub(super) mod login;
pub(super) mod origin;
pub(super) mod planning;
mod session;
pub(super) mod threads;
mod view;
pub(super) mod zone;

use std::sync::LazyLock;

use actix_web::http::{Method, StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use maud::{Markup, html};
use session::{Visitor, visitor};
use sha2::{Digest, Sha256};

use crate::http::error::{Code, Error};
use crate::http::request::{Failure, Open, Request, Take, to};
use crate::http::routes::Entry;
use crate::http::{State, headers, query};
use crate::surfaces::decisions::ListQuery;
pub(super) use login::{Attempts, network};

/// Pages run no script, load only gavel's style sheet and frames, post only to gavel, and cannot be framed.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";
/// A page inside a gavel frame loads only the style sheet and posts nothing.
const FRAMED: &str =
    "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'self'; base-uri 'none'";

/// HTML of others inside a gavel frame: it runs and loads nothing, opens nothing and posts nothing.
const FOREIGN: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; \
                       frame-ancestors 'self'; base-uri 'none'";

/// Rows per page of a list.
const PAGE_SIZE: u32 = 20;

const STYLE: &str = include_str!("view/style.css");

/// The hash in the style sheet's address: a changed style sheet has another address, so browsers may cache each one
/// forever.
static STYLE_HASH: LazyLock<String> = LazyLock::new(|| hex::encode(&Sha256::digest(STYLE)[..8]));

/// Why a request has no page.
pub(super) enum Turned {
    /// There is no session; contains the requested address.
    LogIn(String),
    /// There is no session, so the submitted form was not processed.
    Lost,
    /// The browser followed a link of another site, and so sent no cookie: it must request the page again.
    Again(String),
    /// The form is not from a gavel page; contains the reason.
    NotOurs(&'static str),
    /// Too many failed logins from this address; contains the seconds to wait.
    TooMany(u32),
    /// An error of the edge or a surface.
    Error(Error),
}

impl<E: Into<Error>> From<E> for Turned {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// What the handler of a page returns.
type Page = Result<HttpResponse, Turned>;

impl Visitor {
    fn page(&self, title: &str, body: &Markup) -> HttpResponse {
        page(StatusCode::OK, Some(self), title, body)
    }
}

/// The parameters of a page's address.
pub(super) struct Parameters(HttpRequest);

impl Take<Turned> for Parameters {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        Ok(Self(request.http.clone()))
    }
}

impl Parameters {
    /// The page of a list that is asked for.
    fn list(&self) -> ListQuery {
        ListQuery {
            page_size: PAGE_SIZE,
            page_token: self.get("page_token"),
            ..ListQuery::default()
        }
    }

    /// A parameter that is a whole number.
    fn number(&self, name: &str) -> Option<u32> {
        self.get(name).and_then(|text| query::number(&text))
    }

    /// A parameter that occurs once and is not empty.
    fn get(&self, name: &str) -> Option<String> {
        let value = query::once(self.0.query_string(), name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }
}

pub(super) async fn index(_: Open) -> Page {
    Ok(see(paths::APPROVALS))
}

pub(super) async fn style(open: Open) -> Page {
    let tag = format!("\"{}\"", *STYLE_HASH);
    let known = headers::only(open.headers(), &header::IF_NONE_MATCH);
    let known = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let status = if known {
        StatusCode::NOT_MODIFIED
    } else {
        StatusCode::OK
    };
    let mut response = headers::page(status, POLICY);
    response.insert_header((header::CONTENT_TYPE, "text/css; charset=utf-8"));
    response.insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"));
    response.insert_header((header::ETAG, tag));
    Ok(match known {
        // A body after this head would be read as the next response (RFC 9110 section 15.4.5).
        true => response.finish(),
        false => response.body(STYLE),
    })
}

/// Builds a page response.
fn page(status: StatusCode, visitor: Option<&Visitor>, title: &str, body: &Markup) -> HttpResponse {
    let mut response = secured(status);
    if let Some(cookie) = visitor.and_then(|visitor| visitor.new_cookie.clone()) {
        response.insert_header((header::SET_COOKIE, cookie));
    }
    response.body(view::page(visitor, title, body).into_string())
}

/// Redirects to another page of the console with GET.
fn see(path: &str) -> HttpResponse {
    let mut response = secured(StatusCode::SEE_OTHER);
    response.insert_header((header::LOCATION, path)).finish()
}

fn secured(status: StatusCode) -> HttpResponseBuilder {
    let mut response = headers::page(status, POLICY);
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    response
}

/// A page that gavel's own pages may frame.
fn framed(page: Markup) -> HttpResponse {
    in_frame(FRAMED, page.into_string())
}

/// HTML of others, which only gavel's own pages may frame.
fn foreign(document: String) -> HttpResponse {
    in_frame(FOREIGN, document)
}

fn in_frame(policy: &'static str, body: String) -> HttpResponse {
    let mut response = secured(StatusCode::OK);
    response.insert_header((header::CONTENT_SECURITY_POLICY, policy));
    response.insert_header((header::X_FRAME_OPTIONS, "SAMEORIGIN"));
    response.insert_header(("x-dns-prefetch-control", "off"));
    response.body(body)
}

impl Failure for Turned {
    async fn respond(self, request: &mut Request) -> HttpResponse {
        let page = reason(&request.state, &request.http, self).await;
        request.end().finish(Ok(page))
    }
}

/// The page with the reason. It has the navigation of the visitor.
pub(super) async fn reason(state: &State, request: &HttpRequest, turned: Turned) -> HttpResponse {
    match turned {
        Turned::LogIn(next) => see(&login::address(&next)),
        Turned::Lost => see(&login::address_of_lost()),
        Turned::Again(path) => {
            let mut response = secured(StatusCode::OK);
            response.body(view::again(&path).into_string())
        }
        Turned::NotOurs(words) => {
            let body = view::trouble("Nothing was done", words, &[]);
            page(StatusCode::FORBIDDEN, None, "Nothing was done", &body)
        }
        Turned::TooMany(seconds) => {
            let words = format!("There were too many failed logins from your address. Try again in {seconds} seconds.");
            let body = view::trouble("Please wait", &words, &[]);
            let mut response = page(StatusCode::TOO_MANY_REQUESTS, None, "Please wait", &body);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, headers::seconds(seconds));
            response
        }
        Turned::Error(error) => {
            // Without navigation if there is no session, or if it cannot be read now.
            let visitor = visitor(state, request, true).await.ok();
            trouble(error, visitor.as_ref())
        }
    }
}

/// Renders an error as a page.
fn trouble(error: Error, visitor: Option<&Visitor>) -> HttpResponse {
    let code = error.problem.code;
    let (status, words, errors, headers) = error.in_words();
    let (title, words) = match code {
        Code::NotFound => ("Not found", "There is no such page, or it belongs to another user."),
        Code::InvalidRequest => ("Invalid input", "Nothing was done."),
        _ => ("Request failed", &*words),
    };
    let mut response = page(status, visitor, title, &view::trouble(title, words, &errors));
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The text for a list without rows.
fn nothing(words: &str) -> Markup {
    html! { p.empty { (words) } }
}

/// The table of pages. A line: method, path, and what answers it.
macro_rules! pages {
    ($($method:ident $path:expr => $page:path;)+) => {
        /// The pages of the console.
        pub(super) fn pages() -> Vec<Entry> {
            vec![$(Entry::page(Method::$method, $path, |route| to(route, $page)),)+]
        }
    };
}

pages! {
    GET paths::CONSOLE => index;
    GET paths::STYLE => style;
    GET paths::LOGIN => login::show;
    POST paths::LOGIN => login::log_in;
    POST paths::LOG_OUT => login::log_out;
    GET paths::ZONE => zone::show;
    POST paths::ZONE => zone::choose;
    GET paths::APPROVALS => approvals::list;
    GET "/console/approvals/{id}" => approvals::one;
    POST "/console/approvals/{id}" => approvals::resolve;
    GET paths::ANSWERED => approvals::answered;
    GET "/console/actions/{id}" => approvals::action;
    GET "/console/actions/{id}/html" => approvals::html;
    POST "/console/actions/{id}" => approvals::settle;
    GET paths::THREADS => threads::list;
    GET "/console/threads/{id}" => threads::thread;
    GET paths::SESSIONS => planning::list;
    GET "/console/sessions/{id}" => planning::session::show;
    GET "/console/sessions/{id}/news" => planning::look;
    POST "/console/sessions/{id}/confirm" => planning::confirm;
    POST "/console/sessions/{id}/cancel" => planning::cancel;
    GET "/console/sessions/{id}/tasks/{taskId}" => planning::task::task;
    GET "/console/sessions/{id}/log" => planning::task::log;
    GET "/console/sessions/{id}/versions" => planning::versions::show;
    GET paths::OVERVIEW => analysis::overview::show;
    GET paths::DECISIONS => analysis::decisions::list;
    GET "/console/decisions/{id}" => analysis::decision::show;
    GET paths::TOOLS => analysis::tables::tools;
    GET paths::MODELS => analysis::tables::models;
    GET paths::COST => analysis::tables::cost;
    GET paths::GRANTS => grants::list;
    POST "/console/grants/{id}" => grants::revoke;
}

/// The paths of the pages that other pages link to.
pub(super) mod paths {
    pub(crate) const CONSOLE: &str = "/console";
    pub(crate) const ANSWERED: &str = "/console/answered";
    pub(crate) const APPROVALS: &str = "/console/approvals";
    pub(crate) const COST: &str = "/console/cost";
    pub(crate) const DECISIONS: &str = "/console/decisions";
    pub(crate) const GRANTS: &str = "/console/grants";
    pub(crate) const LOG_OUT: &str = "/console/logout";
    pub(crate) const LOGIN: &str = "/console/login";
    pub(crate) const MODELS: &str = "/console/models";
    pub(crate) const OVERVIEW: &str = "/console/overview";
    pub(crate) const SESSIONS: &str = "/console/sessions";
    pub(crate) const STYLE: &str = "/console/style.css";
    pub(crate) const THREADS: &str = "/console/threads";
    pub(crate) const TOOLS: &str = "/console/tools";
    pub(crate) const ZONE: &str = "/console/zone";
}
