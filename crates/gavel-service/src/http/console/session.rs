//! The visitor of a page, the cookies that identify them, and the forms that they send.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpMessage, HttpRequest};
use chrono_tz::Tz;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::domain::ids::UserId;
use crate::http::caller::Auth;
use crate::http::console::{Turned, origin};
use crate::http::request::{self, Request, Take};
use crate::http::{State, connections, query};
use crate::surfaces::caller::{ANALYST, APPROVER, Caller, Identity};
use crate::surfaces::sessions::{self, is_token};

/// How long a browser without a session keeps the cookie that binds forms to it.
const FORM_LASTS: Duration = Duration::from_secs(24 * 3600);

/// The visitor of a page, or the sender of a form.
pub(crate) struct Visitor {
    pub(super) caller: Caller,
    /// The acting user.
    pub(super) user: Option<UserId>,
    /// The user whose threads they may read; absent: all users of the tenant.
    pub(super) reads: Option<UserId>,
    /// The name under which their decisions are recorded.
    pub(super) name: String,
    /// The token that their forms must contain; absent if the browser has no gavel cookie.
    pub(super) form_token: Option<String>,
    /// Whether there is a session to log out of.
    pub(super) logged_in: bool,
    /// A cookie to set in the browser.
    pub(super) new_cookie: Option<HeaderValue>,
    /// The time zone of displayed times.
    pub(super) zone: Tz,
}

impl Take<Turned> for Visitor {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        let visitor = visitor(&request.state, &request.http, true).await?;
        request.form_token.clone_from(&visitor.form_token);
        Ok(visitor)
    }
}

/// The visitor of a page that refreshes itself: it does not count as use, so an unused session ends although its pages
/// are open.
pub(crate) struct Onlooker(pub(super) Visitor);

impl Take<Turned> for Onlooker {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        visitor(&request.state, &request.http, false).await.map(Self)
    }
}

/// Identifies the visitor.
///
/// # Errors
/// There is no session; the store is unavailable; with `auth.mode = none`, the host is not a name of this machine.
pub(super) async fn visitor(state: &State, request: &HttpRequest, is_used: bool) -> Result<Visitor, Turned> {
    if let Auth::None(caller) = &state.edge.auth {
        return local_visitor(caller, request);
    }
    let Some(token) = Cookie::Session.token(request) else {
        return Err(stranger(request));
    };
    let found = state.edge.sessions.find(&token, is_used).await?;
    let known = found.and_then(|session| Some((state.edge.auth.of_session(&session)?, session.user)));
    let (caller, user) = known.ok_or_else(|| stranger(request))?;
    connections::belongs_to(request, &caller);
    Ok(Visitor::new(request, caller, user, &token))
}

/// Callers are not authenticated here, and any caller that reaches the port may act for any user. The console does so
/// as the user `local`. The host must be a name of this machine, because a page of another site could reach gavel under
/// a host name of its own (DNS rebinding).
fn local_visitor(caller: &Caller, request: &HttpRequest) -> Result<Visitor, Turned> {
    if !origin::is_local(request) {
        return Err(Turned::NotOurs(
            "With auth.mode = none the console is available only under localhost and loopback addresses.",
        ));
    }
    let mut roles = BTreeSet::clone(&caller.roles);
    roles.insert(APPROVER.to_owned());
    let caller = Caller {
        roles: Arc::new(roles),
        ..caller.clone()
    };
    let (token, new_cookie) = form_cookie(request)?;
    Ok(Visitor {
        reads: None,
        logged_in: false,
        new_cookie,
        ..Visitor::new(request, caller, UserId::parse(request::LOCAL).ok(), &token)
    })
}

/// The cookie that binds forms to a browser without a session, and the header that sets a new one.
pub(super) fn form_cookie(request: &HttpRequest) -> Result<(String, Option<HeaderValue>), Turned> {
    if let Some(token) = Cookie::Form.token(request) {
        return Ok((token, None));
    }
    let token = sessions::token()?;
    let set = Cookie::Form.set(request, &token, FORM_LASTS);
    Ok((token, Some(set)))
}

/// A `SameSite=Strict` cookie is not sent when the user follows a link in a mail. Such a request first repeats itself
/// from a gavel page, and only then leads to the login.
fn stranger(request: &HttpRequest) -> Turned {
    let is_get = *request.method() == Method::GET;
    let asked = request.uri().path_and_query().map_or("", |path| path.as_str());
    match is_get {
        true if origin::is_from_elsewhere(request) && Cookie::Session.token(request).is_none() => {
            Turned::Again(asked.to_owned())
        }
        true => Turned::LogIn(asked.to_owned()),
        false => Turned::Lost,
    }
}

impl Visitor {
    /// The visitor with this token in a cookie. Without the role approver they can act only for the user named at login.
    fn new(request: &HttpRequest, caller: Caller, user: Option<UserId>, token: &str) -> Self {
        Self {
            name: caller.name_for(user.as_ref()),
            reads: user.clone(),
            user,
            caller,
            form_token: Some(token_of(token)),
            logged_in: true,
            new_cookie: None,
            zone: zone(request),
        }
    }

    /// The name shown to the visitor.
    pub(super) fn shown(&self) -> String {
        match (&self.caller.identity, &self.user) {
            (Identity::User(user), _) => user.to_string(),
            (Identity::Service(_), Some(user)) => user.to_string(),
            (Identity::Service(name), None) => format!("service {name}"),
        }
    }

    /// The user whose rows of the logs they see; `None`: all of the tenant, as an analyst does for any user.
    pub(super) fn rows(&self) -> Option<UserId> {
        self.reads.clone().filter(|_| !self.caller.roles.contains(ANALYST))
    }

    /// Whether they may decide approval requests of other users.
    pub(super) fn is_approver(&self) -> bool {
        self.caller.roles.contains(APPROVER)
    }

    /// Whether they may read the threads of this user.
    pub(super) fn may_read(&self, user: &str) -> bool {
        self.user.is_some() && self.reads.as_ref().is_none_or(|reads| reads.as_str() == user)
    }
}

/// The form field that binds a form to the browser that displays it.
pub(crate) const FIELD: &str = "form_token";
/// Most fields of a form; gavel's own forms have fewer.
const MOST_FIELDS: usize = 16;

/// The token that a form must contain to be accepted from the browser with this cookie. It is derived from the cookie's
/// secret, so nothing is stored and no page contains the secret itself.
pub(crate) fn token_of(cookie: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(cookie.as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"));
    mac.update(b"gavel console form");
    hex::encode(mac.finalize().into_bytes())
}

/// The fields of a form.
pub(crate) struct Form(Vec<(String, String)>);

/// A form of the visitor, whom another parameter has identified before.
impl Take<Turned> for Form {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        let expected = request.form_token.take();
        Self::read(request, expected.as_deref()).await
    }
}

impl Form {
    /// Reads a form from the browser with this cookie.
    pub(crate) async fn of(request: &mut Request, cookie: Cookie) -> Result<Self, Turned> {
        let expected = cookie.token(&request.http).map(|token| token_of(&token));
        Self::read(request, expected.as_deref()).await
    }

    /// Reads a form from the browser whose cookie gives the token `expected`.
    ///
    /// # Errors
    /// The form comes from another site, its token is missing or invalid, or its body is invalid.
    async fn read(request: &mut Request, expected: Option<&str>) -> Result<Self, Turned> {
        if !origin::is_own(&request.http) {
            return Err(Turned::NotOurs("This form was sent from another site."));
        }
        let kind = request.http.content_type();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Turned::NotOurs("This is not a form of a gavel page."));
        }
        let body = request.arriving().form().await?;
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(&body)
            .take(MOST_FIELDS)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let form = Self(fields);
        let given = form.get(FIELD).unwrap_or_default();
        let same = expected.is_some_and(|expected| given.as_bytes().ct_eq(expected.as_bytes()).into());
        if !same {
            return Err(Turned::NotOurs(
                "This form is from another login or from an outdated page. Open the page again.",
            ));
        }
        Ok(form)
    }

    /// A field that occurs once.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let values = self.0.iter().filter(|(known, _)| known == name);
        query::single(values).map(|(_, value)| value.as_str())
    }

    /// A non-empty field, with line breaks as `\n`.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let text = self.get(name)?.replace("\r\n", "\n");
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// A cookie of the console. All are `HttpOnly`, `SameSite=Strict` and limited to `/console`. That path excludes the
/// prefix `__Host-`. `Secure` cookies have the prefix `__Secure-`, so that no site on plain HTTP can set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// Identifies a login session.
    Session,
    /// Binds a form to a browser without a session.
    Form,
    /// The time zone of a browser, which is not secret.
    Zone,
}

impl Cookie {
    fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Secure-gavel_session",
            (Self::Session, false) => "gavel_session",
            (Self::Form, true) => "__Secure-gavel_form",
            (Self::Form, false) => "gavel_form",
            (Self::Zone, true) => "__Secure-gavel_zone",
            (Self::Zone, false) => "gavel_zone",
        }
    }

    /// The token in it, if the browser sent exactly one in the expected format.
    pub(crate) fn token(self, request: &HttpRequest) -> Option<String> {
        let value = self.value(request)?;
        is_token(value).then(|| value.to_owned())
    }

    fn value(self, request: &HttpRequest) -> Option<&str> {
        value(request, self.name(origin::is_secure(request)))
    }

    /// The header that sets the cookie for a duration; zero deletes it.
    pub(crate) fn set(self, request: &HttpRequest, value: &str, lasts: Duration) -> HeaderValue {
        let secure = origin::is_secure(request);
        let text = format!(
            "{}={value}; Path=/console; Max-Age={}; HttpOnly; SameSite=Strict{}",
            self.name(secure),
            lasts.as_secs(),
            if secure { "; Secure" } else { "" }
        );
        HeaderValue::try_from(text).unwrap_or_else(|_| unreachable!("names, hex digits and zones are visible ASCII"))
    }
}

/// The time zone chosen in this browser.
fn zone(request: &HttpRequest) -> Tz {
    let chosen = Cookie::Zone.value(request).and_then(|name| name.parse().ok());
    chosen.unwrap_or(Tz::UTC)
}

/// The value of the single cookie of this name.
fn value<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut found = None;
    for line in request.headers().get_all(header::COOKIE) {
        // Cookies of other ports on the same host may contain any bytes.
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else {
                continue;
            };
            let (key, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
            if key == name.as_bytes() && found.replace(value).is_some() {
                return None;
            }
        }
    }
    std::str::from_utf8(found?).ok()
}
