//! Cookies of the console: one for a login session, one that binds a form to a browser without a session, and one with
//! the time zone of a browser, which is not secret.
//!
//! All are `HttpOnly`, `SameSite=Strict` and limited to `/console`. That path excludes the prefix `__Host-`. `Secure`
//! cookies have the prefix `__Secure-`, so that no site on plain HTTP can set one.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderValue};
use chrono_tz::Tz;

use super::origin;
use crate::surfaces::sessions::is_token;

/// A kind of cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Identifies a login session.
    Session,
    /// Binds a form to a browser.
    Form,
}

impl Cookie {
    const fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Secure-gavel_session",
            (Self::Session, false) => "gavel_session",
            (Self::Form, true) => "__Secure-gavel_form",
            (Self::Form, false) => "gavel_form",
        }
    }

    /// The value, if the browser sent exactly one in the expected format.
    pub(super) fn of(self, request: &HttpRequest) -> Option<String> {
        let value = value(request, self.name(origin::is_secure(request)))?;
        is_token(value).then(|| value.to_owned())
    }

    /// The header that sets the cookie for a duration; zero deletes it.
    pub(super) fn set(self, request: &HttpRequest, value: &str, lasts: Duration) -> HeaderValue {
        set(request, self.name(origin::is_secure(request)), value, lasts)
    }
}

/// A browser keeps its time zone for a year.
const ZONE_LASTS: Duration = Duration::from_secs(365 * 24 * 3600);

const fn zone_name(secure: bool) -> &'static str {
    match secure {
        true => "__Secure-gavel_zone",
        false => "gavel_zone",
    }
}

/// The time zone chosen in this browser.
pub(super) fn zone(request: &HttpRequest) -> Option<Tz> {
    value(request, zone_name(origin::is_secure(request)))?.parse().ok()
}

/// The header that stores the time zone.
pub(super) fn set_zone(request: &HttpRequest, zone: Tz) -> HeaderValue {
    set(request, zone_name(origin::is_secure(request)), zone.name(), ZONE_LASTS)
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

fn set(request: &HttpRequest, name: &str, value: &str, lasts: Duration) -> HeaderValue {
    let text = format!(
        "{name}={value}; Path=/console; Max-Age={}; HttpOnly; SameSite=Strict{}",
        lasts.as_secs(),
        if origin::is_secure(request) { "; Secure" } else { "" }
    );
    HeaderValue::try_from(text).unwrap_or_else(|_| unreachable!("names, hex digits and zones are visible ASCII"))
}
