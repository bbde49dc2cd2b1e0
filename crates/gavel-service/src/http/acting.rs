//! The acting user of routes whose body has no user: the header `X-Gavel-User`.

use actix_web::http::header::{HeaderMap, HeaderName};

use super::error::Error;
use super::headers::only;
use crate::domain::ids::UserId;

const HEADER: HeaderName = HeaderName::from_static("x-gavel-user");
const NAME: &str = "X-Gavel-User";
/// The acting user when callers are not authenticated and name no user.
pub(super) const LOCAL: &str = "local";

/// The user that the header names, if it is present.
///
/// # Errors
/// The header is invalid.
pub(super) fn named(headers: &HeaderMap) -> Result<Option<UserId>, Error> {
    if !headers.contains_key(&HEADER) {
        return Ok(None);
    }
    let value = only(headers, &HEADER).ok_or(Error::InvalidHeader(NAME, "is given more than once"))?;
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
