//! Who looks at a page.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use chrono_tz::Tz;

use super::super::caller::Auth;
use super::super::{State, acting};
use super::cookies::{self, Cookie};
use super::{Turned, form, origin};
use crate::domain::ids::UserId;
use crate::surfaces::caller::{APPROVER, Caller, Identity};
use crate::surfaces::sessions;

/// How long a browser keeps the cookie that ties a form to it where nobody is logged in.
const FORM_LASTS: Duration = Duration::from_secs(24 * 3600);

/// Whoever looks at a page, or sends a form.
pub(super) struct Visitor {
    pub(super) caller: Caller,
    /// Who acts.
    pub(super) user: Option<UserId>,
    /// Whose threads they may read; everybody's of the tenant without.
    pub(super) reads: Option<UserId>,
    /// By this they answer, on the record.
    pub(super) name: String,
    /// What their forms must carry; none where the browser holds no cookie of ours.
    pub(super) form_token: Option<String>,
    /// Is there a login to end?
    pub(super) logged_in: bool,
    /// A cookie the browser lacks.
    pub(super) new_cookie: Option<HeaderValue>,
    /// In which they are shown times.
    pub(super) zone: Tz,
}

/// Finds out.
///
/// # Errors
/// Nobody is logged in; the store is away; with `auth.mode = none`, a name of this machine that is none.
pub(super) async fn visitor(state: &State, request: &HttpRequest) -> Result<Visitor, Turned> {
    found(state, request, true).await
}

/// The same of a page that looks by itself: a login that nobody uses ends, although its pages are open.
///
/// # Errors
/// As [`visitor`].
pub(super) async fn onlooker(state: &State, request: &HttpRequest) -> Result<Visitor, Turned> {
    found(state, request, false).await
}

async fn found(state: &State, request: &HttpRequest, is_used: bool) -> Result<Visitor, Turned> {
    if let Auth::None(caller) = &state.edge.auth {
        return everybody(caller, request);
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
    // One that has lost its role since can act for nobody it has not named.
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

/// Nobody is told apart here, and whoever reaches the port may act for anybody; so may the console, under the name `local`. The
/// host must be a name of this machine, or a page of somebody else's could reach us by a name of its own (DNS rebinding).
fn everybody(caller: &Caller, request: &HttpRequest) -> Result<Visitor, Turned> {
    if !origin::is_local(request) {
        return Err(Turned::NotOurs(
            "With auth.mode = none the console answers under localhost and loopback addresses alone.",
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
    let user = UserId::parse(acting::LOCAL).ok();
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

/// The cookie that ties a form to a browser where nobody is logged in, and the header that sets a new one.
pub(super) fn form_cookie(request: &HttpRequest) -> Result<(String, Option<HeaderValue>), Turned> {
    if let Some(token) = Cookie::Form.of(request) {
        return Ok((token, None));
    }
    let token = sessions::token()?;
    let set = Cookie::Form.set(request, &token, FORM_LASTS);
    Ok((token, Some(set)))
}

/// A cookie that is `SameSite=Strict` does not come along when somebody follows a link in a mail. So such a request is led to ask
/// again from a page of ours, and only then to the login.
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
    /// How they are shown who they are.
    pub(super) fn shown(&self) -> String {
        match (&self.caller.identity, &self.user) {
            (Identity::User(user), _) => user.to_string(),
            (Identity::Service(_), Some(user)) => user.to_string(),
            (Identity::Service(name), None) => format!("service {name}"),
        }
    }

    /// May they answer what others are asked?
    pub(super) fn is_approver(&self) -> bool {
        self.caller.roles.contains(APPROVER)
    }

    /// May they read the thread of this user?
    pub(super) fn may_read(&self, user: &str) -> bool {
        self.user.is_some() && self.reads.as_ref().is_none_or(|reads| reads.as_str() == user)
    }
}
