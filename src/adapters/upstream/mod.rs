//! HTTP to the servers gavel calls: one response type for both clients, and the pool for this machine.
//!
//! Everything goes through reqwest, except POSTs to a plain address of this machine (a sidecar, a
//! gateway, a bundled server), which [`plain`] sends over connections of its own.

mod plain;
mod watched;

use bytes::Bytes;
use http_body::Body as _;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use url::{Host, Url};

use self::plain::Leased;
pub(super) use self::plain::{Limits, NoResponse, Plain};
pub(super) use self::watched::{Taken, Watched};

/// Is it an address of this machine? Then no proxy of the environment stands before it.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// A response whose head has come.
pub(super) enum Response {
    /// Through reqwest.
    General(reqwest::Response),
    /// Through [`Plain`].
    Plain(hyper::Response<Leased>),
}

/// Why a body broke off. Says nothing of the URL, which may hold a secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("{}", why(.0))]
    General(#[source] reqwest::Error),
    #[error("{}", told(.0))]
    Plain(#[source] hyper::Error),
}

impl Response {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::General(response) => response.status(),
            Self::Plain(response) => response.status(),
        }
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        match self {
            Self::General(response) => response.headers(),
            Self::Plain(response) => response.headers(),
        }
    }

    /// Bytes of the body that are still to come, when that is known.
    pub(super) fn content_length(&self) -> Option<u64> {
        match self {
            Self::General(response) => response.content_length(),
            Self::Plain(response) => response.body().size_hint().exact(),
        }
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// It broke off.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::General(response) => response.chunk().await.map_err(BodyError::General),
            Self::Plain(response) => response.body_mut().chunk().await.map_err(BodyError::Plain),
        }
    }

    /// Is it known, without waiting, that no more will come?
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::General(_) => false,
            Self::Plain(response) => response.body().is_end_stream(),
        }
    }
}

impl From<reqwest::Response> for Response {
    fn from(response: reqwest::Response) -> Self {
        Self::General(response)
    }
}

/// The innermost reason, which says what happened; those around it say where, and may name the URL.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut innermost = error.source()?;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    Some(innermost.to_string())
}

/// reqwest's error in words without the URL.
pub(super) fn why(error: &reqwest::Error) -> String {
    cause(error).unwrap_or_else(|| "the request failed".to_owned())
}

/// hyper's error in words; it knows no URL.
fn told(error: &hyper::Error) -> String {
    cause(error).unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_of_this_machine_are_told_apart() {
        for (base, local) in [
            ("http://127.0.0.2:1", true),
            ("http://[::1]:1", true),
            ("http://localhost", true),
            ("http://tasks.localhost:1", true),
            ("http://10.0.0.1", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(base).unwrap()), local, "{base}");
        }
    }
}
