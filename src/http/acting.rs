//! The acting user of routes whose body has no user: the header `X-Gavel-User`.

use actix_web::HttpRequest;
use actix_web::http::header::HeaderName;

use super::State;
use super::caller::Auth;
use super::error::Error;
use super::headers::only;
use crate::domain::ids::UserId;
use crate::surfaces::caller::{Caller, NotThatUser};

const HEADER: HeaderName = HeaderName::from_static("x-gavel-user");
const NAME: &str = "X-Gavel-User";
/// The acting user when callers are not authenticated and name no user.
pub(super) const LOCAL: &str = "local";

/// The acting user, if the caller names one or is one. A service may omit the user to see the data of all its users.
///
/// # Errors
/// The header is invalid, or names another user than the token.
pub(super) fn user(state: &State, caller: &Caller, request: &HttpRequest) -> Result<Option<UserId>, Error> {
    match caller.act_for(named(request)?) {
        Ok(None) if matches!(state.edge.auth, Auth::None(_)) => Ok(UserId::parse(LOCAL).ok()),
        Ok(user) => Ok(user),
        Err(NotThatUser) => Err(Error::UserMismatch),
    }
}

/// The user that the header names, if it is present.
///
/// # Errors
/// As [`user`].
pub(super) fn named_by(caller: &Caller, request: &HttpRequest) -> Result<Option<UserId>, Error> {
    let Some(named) = named(request)? else {
        return Ok(None);
    };
    caller.act_for(Some(named)).map_err(|NotThatUser| Error::UserMismatch)
}

fn named(request: &HttpRequest) -> Result<Option<UserId>, Error> {
    if !request.headers().contains_key(&HEADER) {
        return Ok(None);
    }
    let value = only(request.headers(), &HEADER).ok_or(Error::InvalidHeader(NAME, "is given more than once"))?;
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Error::InvalidHeader(NAME, "is not UTF-8"))?;
    let user = UserId::parse(text).map_err(|_| {
        Error::InvalidHeader(
            NAME,
            "must be 1 to 256 bytes without invisible characters, and not blank",
        )
    })?;
    Ok(Some(user))
}

/// The error for a route that requires a user.
pub(super) const MISSING: Error = Error::InvalidHeader(
    NAME,
    "is missing; it must name the user the agent acts for, since no token names one",
);
