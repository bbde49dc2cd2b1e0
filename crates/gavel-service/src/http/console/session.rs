//! The visitor of a page.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use chrono_tz::Tz;

use super::super::caller::Auth;
use super::super::request::{Request, Take};
use super::super::{State, connection};
use super::cookies::{self, Cookie};
use super::{Turned, form, origin};
use crate::domain::ids::UserId;
use crate::http::about;
use crate::surfaces::caller::{APPROVER, Caller, Identity};
use crate::surfaces::sessions;

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
    let session = match Cookie::Session.of(request) {
        Some(token) => {
            let found = state.edge.sessions.find(&token, is_used).await?;
            found.map(|session| (token, session))
        }
        None => None,
    };
    let known = session.and_then(|(token, session)| {
        let caller = state.edge.auth.of_session(&session)?;
        Some((token, caller, session.user))
    });
    let Some((token, caller, user)) = known else {
        return Err(stranger(request));
    };
    connection::belongs_to(request, &caller);
    // A visitor without the role approver can act only for the user named at login.
    Ok(Visitor {
        name: caller.name_for(user.as_ref()),
        reads: user.clone(),
        user,
        caller,
        form_token: Some(form::token(&token)),
        logged_in: true,
        new_cookie: None,
        zone: zone(request),
    })
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
    let caller = Caller {
        roles: Arc::new(
            caller
                .roles
                .iter()
                .cloned()
                .chain([APPROVER.to_owned()])
                .collect::<BTreeSet<_>>(),
        ),
        ..caller.clone()
    };
    let user = UserId::parse(about::LOCAL).ok();
    let (token, new_cookie) = form_cookie(request)?;
    Ok(Visitor {
        name: caller.name_for(user.as_ref()),
        user,
        reads: None,
        caller,
        form_token: Some(form::token(&token)),
        logged_in: false,
        new_cookie,
        zone: zone(request),
    })
}

fn zone(request: &HttpRequest) -> Tz {
    cookies::zone(request).unwrap_or(Tz::UTC)
}

/// The cookie that binds forms to a browser without a session, and the header that sets a new one.
pub(super) fn form_cookie(request: &HttpRequest) -> Result<(String, Option<HeaderValue>), Turned> {
    if let Some(token) = Cookie::Form.of(request) {
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
        true if origin::is_from_elsewhere(request) && Cookie::Session.of(request).is_none() => {
            Turned::Again(asked.to_owned())
        }
        true => Turned::LogIn(asked.to_owned()),
        false => Turned::Lost,
    }
}

impl Visitor {
    /// The name shown to the visitor.
    pub(super) fn shown(&self) -> String {
        match (&self.caller.identity, &self.user) {
            (Identity::User(user), _) => user.to_string(),
            (Identity::Service(_), Some(user)) => user.to_string(),
            (Identity::Service(name), None) => format!("service {name}"),
        }
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
