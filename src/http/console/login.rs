//! Login and logout: a key or token is exchanged for a session cookie.

use crate::http::console::paths;
use crate::http::request::Raw;
use std::net::IpAddr;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use super::super::State;
use super::super::caller::{Auth, Shown};
use super::super::error::Error;
use super::approvals::parameter;
use super::cookies::Cookie;
use super::form::{self, Form};
use super::session::{form_cookie, visitor};
use super::view::login::{LoginForm, Wants};
use super::{Turned, page, respond, see, view};
use crate::domain::ids::UserId;
use crate::surfaces::caller::APPROVER;
use crate::surfaces::sessions::Login;

/// Longest address to which a login may redirect.
const MAX_NEXT: usize = 512;
/// Cookies last whole seconds.
const SHORTEST_US: i64 = 1_000_000;
/// The same text for every failure, so that it does not reveal which keys or users exist.
const NOT_ACCEPTED: &str = "Login failed. Enter a key or token that is valid now, complete and without quotation marks. The operator of this \
    service creates keys (gavel config new-key) and knows where tokens come from.";

pub(in crate::http) async fn show(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, shown(&state, &request).await).await))
}

pub(in crate::http) async fn log_in(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(
        &state,
        &request,
        logged_in(&state, &request, payload).await,
    )
    .await))
}

pub(in crate::http) async fn log_out(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(
        &state,
        &request,
        logged_out(&state, &request, payload).await,
    )
    .await))
}

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

async fn shown(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let next = parameter(request, "next");
    let problem = parameter(request, "lost").map(|_| LOST);
    let next = next.as_deref().and_then(own);
    match visitor(state, request).await {
        Ok(_) => Ok(see(next.unwrap_or(paths::APPROVALS))),
        Err(Turned::LogIn(_) | Turned::Again(_) | Turned::Lost) => {
            ask(state, request, StatusCode::OK, next, "", problem)
        }
        Err(turned) => Err(turned),
    }
}

/// Renders the login form.
fn ask(
    state: &State,
    request: &HttpRequest,
    status: StatusCode,
    next: Option<&str>,
    user: &str,
    problem: Option<&str>,
) -> Result<HttpResponse, Turned> {
    let (cookie, set) = form_cookie(request)?;
    let form = LoginForm {
        wants: match &state.edge.auth {
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

async fn logged_in(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    if matches!(state.edge.auth, Auth::None(_)) {
        return Ok(see(paths::APPROVALS));
    }
    let expected = Cookie::Form.of(request).map(|cookie| form::token(&cookie));
    let given = Form::read(state, request, payload, expected.as_deref()).await?;
    let next = given.get("next").and_then(own);
    let named = given.get("user").map(str::trim).unwrap_or_default();
    let ask_again = |problem: &str| ask(state, request, StatusCode::FORBIDDEN, next, named, Some(problem));
    let address: Option<IpAddr> = request.peer_addr().map(|peer| peer.ip());
    let secret = given.get("credential").map(str::trim).unwrap_or_default();
    let credential = match state.edge.auth.shown(secret).await {
        Ok(shown) => shown,
        Err(Error::AuthUnavailable) => return Err(Error::AuthUnavailable.into()),
        Err(_) => {
            if let Some(seconds) = state.attempts.failed(address) {
                return Err(Turned::TooMany(seconds));
            }
            tracing::info!(?address, "a console login failed");
            return ask_again(NOT_ACCEPTED);
        }
    };
    // A just expired token may be valid within the clock leeway, but its session cookie would expire at once.
    let soon = state.edge.sessions.now_us().saturating_add(SHORTEST_US);
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
    let (token, lasts) = state.edge.sessions.begin(login).await?;
    // A repeated login ends the previous session.
    if let Some(before) = Cookie::Session.of(request) {
        state.edge.sessions.end(&before).await?;
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

async fn logged_out(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    let cookie = Cookie::Session.of(request);
    let expected = cookie.as_deref().map(form::token);
    Form::read(state, request, payload, expected.as_deref()).await?;
    if let Some(token) = &cookie {
        state.edge.sessions.end(token).await?;
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
