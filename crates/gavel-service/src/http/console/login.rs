//! Login and logout: a key or token is exchanged for a session cookie.

use super::paths;
use std::net::IpAddr;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header;

use super::cookies::Cookie;
use super::form::{self, Form};
use super::session::{Visitor, form_cookie};
use super::view::login::{LoginForm, Wants};
use super::{Parameters, Turned, page, see, view};
use crate::domain::ids::UserId;
use crate::http::caller::{Auth, Shown};
use crate::http::error::Error;
use crate::http::request::{Open, Request, Take};
use crate::surfaces::caller::APPROVER;
use crate::surfaces::sessions::Login;

/// Longest address to which a login may redirect.
const MAX_NEXT: usize = 512;
/// Cookies last whole seconds.
const SHORTEST_US: i64 = 1_000_000;
/// The same text for every failure, so that it does not reveal which keys or users exist.
const NOT_ACCEPTED: &str = "Login failed. Enter a key or token that is valid now, complete and without quotation marks. The operator of this \
    service creates keys (gavel config new-key) and knows where tokens come from.";

/// The address of the login page, which redirects to `next`.
pub(super) fn address(next: &str) -> String {
    let path = paths::LOGIN;
    match own(next) {
        Some(next) => {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("next", next)
                .finish();
            format!("{path}?{query}")
        }
        None => path.to_owned(),
    }
}

/// The login page after a form was sent without a session; it redirects to the list.
pub(super) fn address_of_lost() -> String {
    format!("{}&lost=1", address(paths::APPROVALS))
}

const LOST: &str = "You are no longer logged in, so your input was not processed. Log in, and send it again.";

/// Accepts only addresses of the console, so that a login redirects nowhere else.
fn own(next: &str) -> Option<&str> {
    let plain = next
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\\\"<>`{}|^".contains(&byte));
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let inside = path.starts_with("/console/") && ["//", "..", "%"].iter().all(|part| !path.contains(part));
    let other = [paths::LOGIN, paths::LOG_OUT].iter().all(|route| *path != **route);
    (plain && inside && other && next.len() <= MAX_NEXT).then_some(next)
}

pub(crate) async fn show(
    open: Open,
    visitor: Result<Visitor, Turned>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let next = given.get("next");
    let problem = given.get("lost").map(|_| LOST);
    let next = next.as_deref().and_then(own);
    match visitor {
        Ok(_) => Ok(see(next.unwrap_or(paths::APPROVALS))),
        Err(Turned::LogIn(_) | Turned::Again(_) | Turned::Lost) => ask(&open, StatusCode::OK, next, "", problem),
        Err(turned) => Err(turned),
    }
}

/// Renders the login form.
fn ask(
    open: &Open,
    status: StatusCode,
    next: Option<&str>,
    user: &str,
    problem: Option<&str>,
) -> Result<HttpResponse, Turned> {
    let (cookie, set) = form_cookie(&open.http)?;
    let form = LoginForm {
        wants: match &open.auth {
            Auth::Jwt(_) => Wants::Token,
            Auth::ApiKeys(_) | Auth::None(_) | Auth::OneCommand(_) => Wants::Key,
        },
        form_token: &form::token(&cookie),
        next,
        user,
        problem,
    };
    let mut response = page(status, None, "Log in", &view::login::form(&form));
    if let Some(set) = set {
        response.headers_mut().insert(header::SET_COOKIE, set);
    }
    Ok(response)
}

/// The form of a browser without a session.
pub(crate) struct LogIn(Form);

impl Take<Turned> for LogIn {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        let expected = Cookie::Form.of(&request.http).map(|cookie| form::token(&cookie));
        Form::read(request, expected.as_deref()).await.map(Self)
    }
}

pub(crate) async fn log_in(open: Open, form: Result<LogIn, Turned>) -> Result<HttpResponse, Turned> {
    if matches!(open.auth, Auth::None(_)) {
        return Ok(see(paths::APPROVALS));
    }
    let (LogIn(given), request) = (form?, &open.http);
    let next = given.get("next").and_then(own);
    let named = given.get("user").map(str::trim).unwrap_or_default();
    let ask_again = |problem: &str| ask(&open, StatusCode::FORBIDDEN, next, named, Some(problem));
    let address: Option<IpAddr> = request.peer_addr().map(|peer| peer.ip());
    let secret = given.get("credential").map(str::trim).unwrap_or_default();
    let credential = match open.auth.shown(secret).await {
        Ok(shown) => shown,
        Err(Error::AuthUnavailable) => return Err(Error::AuthUnavailable.into()),
        Err(_) => {
            if let Some(seconds) = open.state.attempts.failed(address) {
                return Err(Turned::TooMany(seconds));
            }
            tracing::info!(?address, "a console login failed");
            return ask_again(NOT_ACCEPTED);
        }
    };
    // A just expired token may be valid within the clock leeway, but its session cookie would expire at once.
    let soon = open.sessions.now_us().saturating_add(SHORTEST_US);
    if credential.until_us.is_some_and(|until| until < soon) {
        return ask_again(NOT_ACCEPTED);
    }
    let user = match who(&credential, named) {
        Ok(user) => user,
        Err(problem) => return ask_again(problem),
    };
    let caller = credential.caller.name();
    let login = Login {
        tenant: credential.caller.tenant,
        credential: credential.credential,
        user,
        until_us: credential.until_us,
    };
    let (token, lasts) = open.sessions.begin(login).await?;
    // A repeated login ends the previous session.
    if let Some(before) = Cookie::Session.of(request) {
        open.sessions.end(&before).await?;
    }
    tracing::info!(%caller, ?address, "logged in to the console");
    let mut response = see(next.unwrap_or(paths::APPROVALS));
    let cookie = Cookie::Session.set(request, &token, lasts);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The acting user: the user of a token; for a service the user it names, which only an approver may omit.
fn who(shown: &Shown, named: &str) -> Result<Option<UserId>, &'static str> {
    let asked = match named {
        "" => None,
        named => Some(
            UserId::parse(named)
                .map_err(|_| "The name must be 1 to 256 bytes without invisible characters, and not blank.")?,
        ),
    };
    let user = shown
        .caller
        .act_for(asked)
        .map_err(|_| "Its user may act only for themselves: leave the name empty, or enter that user.")?;
    if user.is_none() && !shown.caller.roles.contains(APPROVER) {
        return Err("Enter the name of the acting user: this key does not have the role approver.");
    }
    Ok(user)
}

/// The form of a session.
pub(crate) struct LogOut;

impl Take<Turned> for LogOut {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        let expected = Cookie::Session.of(&request.http).map(|cookie| form::token(&cookie));
        Form::read(request, expected.as_deref()).await.map(|_| Self)
    }
}

pub(crate) async fn log_out(open: Open, _: LogOut) -> Result<HttpResponse, Turned> {
    let request = &open.http;
    if let Some(token) = Cookie::Session.of(request) {
        open.sessions.end(&token).await?;
    }
    let mut response = see(paths::LOGIN);
    let gone = Cookie::Session.set(request, "", std::time::Duration::ZERO);
    response.headers_mut().insert(header::SET_COOKIE, gone);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_the_console_and_nowhere_else() {
        for good in [
            "/console/approvals",
            "/console/approvals?tool=a%20b",
            "/console/threads/0193",
        ] {
            assert_eq!(own(good), Some(good));
        }
        for bad in [
            "",
            "/",
            "/console",
            "//evil.example",
            "/console//evil.example",
            "/\\evil.example",
            "/console/\\evil.example",
            "/console/../v1/chat",
            "/console/%2e%2e/v1/chat",
            "https://evil.example/console/",
            "/consolex/",
            "javascript:alert(1)",
            "/console/a\r\nset-cookie: a=b",
            "/console/login",
            "/console/logout",
            "/console/login?next=/console/login",
        ] {
            assert_eq!(own(bad), None, "{bad}");
            assert_eq!(address(bad), "/console/login", "{bad}");
        }
        assert_eq!(
            address("/console/grants?a=b"),
            "/console/login?next=%2Fconsole%2Fgrants%3Fa%3Db"
        );
    }
}
