//! The acting user of the routes that take no user in their body: the header `X-Gavel-User` (DESIGN.md section 9, Callers).

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
/// Who acts where nobody is told apart and nobody is named.
pub(super) const LOCAL: &str = "local";

/// Who acts, where the caller says so or is one user. A service may leave it open to see what all its users have.
///
/// # Errors
/// The header is off, or names somebody else than the token.
pub(super) fn user(state: &State, caller: &Caller, request: &HttpRequest) -> Result<Option<UserId>, Error> {
    match caller.act_for(named(request)?) {
        Ok(None) if matches!(state.edge.auth, Auth::None(_)) => Ok(UserId::parse(LOCAL).ok()),
        Ok(user) => Ok(user),
        Err(NotThatUser) => Err(Error::UserMismatch),
    }
}

/// Whom the header names, where it is there.
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

/// Who acts, where somebody has to.
///
/// # Errors
/// As [`user`]; nobody is named.
pub(super) fn required(state: &State, caller: &Caller, request: &HttpRequest) -> Result<UserId, Error> {
    user(state, caller, request)?.ok_or(Error::InvalidHeader(
        NAME,
        "is missing; it names the user the agent acts for, since no token says who that is",
    ))
}
