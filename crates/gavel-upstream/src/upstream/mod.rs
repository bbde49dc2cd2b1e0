//! HTTP to the servers that gavel calls: one response type for both clients, and a connection pool for servers on this
//! machine.
//!
//! All requests use reqwest, except POSTs over plain HTTP to this machine (a sidecar, a gateway, a bundled server).
//! [`plain`] sends those.

mod gated_body;
mod plain;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use url::{Host, Url};

pub use self::gated_body::GatedBody;
pub use self::plain::{Limits, NoResponse, Plain};

/// Is this an address of this machine? If so, proxies from the environment are not used for it.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// A response whose head has been received.
pub enum Response {
    /// Through reqwest.
    General(reqwest::Response),
    /// Through [`Plain`].
    Plain(hyper::Response<Incoming>),
}

/// Why reading the body failed. It does not contain the URL, which may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{}", why(.0))]
    General(#[source] reqwest::Error),
    #[error("{}", describe(.0))]
    Plain(#[source] hyper::Error),
}

impl Response {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::General(response) => response.status(),
            Self::Plain(response) => response.status(),
        }
    }

    pub fn headers(&self) -> &HeaderMap {
        match self {
            Self::General(response) => response.headers(),
            Self::Plain(response) => response.headers(),
        }
    }

    /// Bytes of the body that have not been read yet, if known.
    pub fn content_length(&self) -> Option<u64> {
        match self {
            Self::General(response) => response.content_length(),
            Self::Plain(response) => response.body().size_hint().exact(),
        }
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::General(response) => response.chunk().await.map_err(BodyError::General),
            Self::Plain(response) => loop {
                let Some(frame) = response.body_mut().frame().await else {
                    return Ok(None);
                };
                // Trailers are skipped.
                if let Ok(data) = frame.map_err(BodyError::Plain)?.into_data() {
                    return Ok(Some(data));
                }
            },
        }
    }

    /// Is it known, without waiting, that the body has been read completely?
    pub fn is_read(&self) -> bool {
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

/// The innermost cause, which says what happened. Outer errors only say where, and may contain the URL.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut innermost = error.source()?;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    Some(innermost.to_string())
}

/// The message of a reqwest error, without the URL.
pub fn why(error: &reqwest::Error) -> String {
    cause(error).unwrap_or_else(|| "the request failed".to_owned())
}

/// The message of a hyper error, which never contains a URL.
fn describe(error: &hyper::Error) -> String {
    cause(error).unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_of_this_machine_are_distinguished() {
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
