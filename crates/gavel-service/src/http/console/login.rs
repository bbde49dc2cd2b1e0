//! Login and logout: a key or token is exchanged for a session cookie.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::http::{StatusCode, header};
use maud::html;

use crate::domain::ids::UserId;
use crate::http::caller::{Auth, Shown};
use crate::http::console::session::{self, Cookie, FIELD, Form, Visitor, form_cookie};
use crate::http::console::view::{self, words};
use crate::http::console::{Page, Parameters, Turned, page, paths, see};
use crate::http::error::Code;
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
    view::address(paths::LOGIN, &[("next", own(next))])
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

pub(crate) async fn show(open: Open, visitor: Result<Visitor, Turned>, given: Parameters) -> Page {
    let next = given.get("next");
    let problem = given.get("lost").map(|_| LOST);
    let next = next.as_deref().and_then(own);
    match visitor {
        Ok(_) => Ok(see(next.unwrap_or(paths::APPROVALS))),
        Err(Turned::LogIn(_) | Turned::Again(_) | Turned::Lost) => ask(&open, StatusCode::OK, next, "", problem),
        Err(turned) => Err(turned),
    }
}

/// Renders the login form. `user` is what was entered before.
fn ask(open: &Open, status: StatusCode, next: Option<&str>, user: &str, problem: Option<&str>) -> Page {
    let (cookie, set) = form_cookie(&open.http)?;
    let is_token = matches!(open.auth, Auth::Jwt(_));
    let body = html! {
        div.login {
            h1 { "Log in" }
            p.lead { "gavel's console: approve or reject what agents want to do, and read plans and threads." }
            @if let Some(problem) = problem { p.flash.bad role="alert" { (words::text(problem)) } }
            form method="post" action=(paths::LOGIN) {
                input type="hidden" name=(FIELD) value=(session::token_of(&cookie));
                @if let Some(next) = next { input type="hidden" name="next" value=(next); }
                label for="credential" { (if is_token { "Token (JWT)" } else { "API key" }) }
                input #credential type="password" name="credential" required autocomplete="off" autofocus
                    autocapitalize="off" spellcheck="false";
                @if is_token {
                    p.hint { "Your identity provider issues the token." }
                } @else {
                    label for="user" { "Your name" }
                    input #user type="text" name="user" value=(user) autocomplete="username" autocapitalize="off"
                        spellcheck="false" aria-describedby="user-hint";
                    p.hint #user-hint { "The acting user, as agents know you (" code { "X-Gavel-User" } "). Optional with a personal key and with a key for approvers." }
                    p.hint { "The operator of gavel gives you a key (" code { "gavel config new-key" } ")." }
                }
                button.yes type="submit" { "Log in" }
            }
        }
    };
    let mut response = page(status, None, "Log in", &body);
    if let Some(set) = set {
        response.headers_mut().insert(header::SET_COOKIE, set);
    }
    Ok(response)
}

/// The form of a browser without a session.
pub(crate) struct LogIn(Form);

impl Take<Turned> for LogIn {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        Form::of(request, Cookie::Form).await.map(Self)
    }
}

pub(crate) async fn log_in(open: Open, form: Result<LogIn, Turned>) -> Page {
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
        Err(error) if error.problem.code == Code::AuthUnavailable => return Err(error.into()),
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
    if let Some(before) = Cookie::Session.token(request) {
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
        Form::of(request, Cookie::Session).await.map(|_| Self)
    }
}

pub(crate) async fn log_out(open: Open, _: LogOut) -> Page {
    let request = &open.http;
    if let Some(token) = Cookie::Session.token(request) {
        open.sessions.end(&token).await?;
    }
    let mut response = see(paths::LOGIN);
    let gone = Cookie::Session.set(request, "", std::time::Duration::ZERO);
    response.headers_mut().insert(header::SET_COOKIE, gone);
    Ok(response)
}

/// Failed logins that an address has at once; after that, one more per pause.
const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_secs(6);
/// Most addresses that are counted. Beyond that, the one with the oldest failure is forgotten.
const MOST: usize = 4096;

/// The addresses with recent failed logins. Each process counts separately. A valid login is always accepted: behind a
/// proxy all users share one address, and failed logins of others must not lock them out. Keys have too many bits to be
/// guessed.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<HashMap<IpAddr, Failed>>);

/// Time at which the address has all its attempts again.
struct Failed {
    whole_at: Instant,
}

impl Attempts {
    /// Counts a failure. If no attempt was left, returns the seconds to wait, and does not count this one.
    pub(crate) fn failed(&self, address: Option<IpAddr>) -> Option<u32> {
        self.failed_at(address, Instant::now())
    }

    fn failed_at(&self, address: Option<IpAddr>, now: Instant) -> Option<u32> {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if failed.len() >= MOST && !failed.contains_key(&network) {
            failed.retain(|_, one| one.whole_at > now);
            let first = failed
                .iter()
                .min_by_key(|(_, one)| one.whole_at)
                .map(|(address, _)| *address);
            if failed.len() >= MOST
                && let Some(first) = first
            {
                failed.remove(&first);
            }
        }
        let one = failed.entry(network).or_insert(Failed { whole_at: now });
        let over = one
            .whole_at
            .saturating_duration_since(now)
            .checked_sub(PAUSE * (AT_ONCE - 1));
        if let Some(over) = over.filter(|over| !over.is_zero()) {
            return Some(u32::try_from(over.as_secs()).unwrap_or(u32::MAX).saturating_add(1));
        }
        one.whole_at = one.whole_at.max(now) + PAUSE;
        None
    }
}

/// The network of an address. An IPv6 user has at least 2^64 addresses, so these count as one.
pub(crate) fn network(address: Option<IpAddr>) -> IpAddr {
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        Some(address) => address,
        None => Ipv6Addr::UNSPECIFIED.into(),
    }
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

#[cfg(test)]
mod attempts_tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn an_address_that_failed_too_often_waits_and_others_do_not() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let eve = address("10.0.0.1");
        for n in 0..AT_ONCE {
            assert_eq!(attempts.failed_at(eve, now), None, "attempt {n}");
        }
        assert_eq!(attempts.failed_at(eve, now), Some(7));
        assert_eq!(attempts.failed_at(address("10.0.0.2"), now), None);
        let later = now + PAUSE;
        assert_eq!(attempts.failed_at(eve, later), None, "one is back");
        assert!(attempts.failed_at(eve, later).is_some());
    }

    #[test]
    fn attempts_at_the_same_time_are_no_more() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let reported = std::thread::scope(|scope| {
            let tries = || (0..AT_ONCE).filter(|_| attempts.failed_at(None, now).is_none()).count();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(tries)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        assert_eq!(reported, AT_ONCE as usize);
    }

    #[test]
    fn the_addresses_of_one_network_of_ipv6_are_one() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for n in 0..AT_ONCE {
            attempts.failed_at(address(&format!("2001:db8::{n:x}")), now);
        }
        assert!(attempts.failed_at(address("2001:db8::ffff"), now).is_some());
        assert!(attempts.failed_at(address("2001:db8:0:1::1"), now).is_none());
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_fail() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for n in 0..u32::try_from(MOST).unwrap() + 100 {
            attempts.failed_at(Some(IpAddr::V4(n.into())), now);
        }
        assert_eq!(attempts.0.lock().unwrap().len(), MOST);
    }
}
