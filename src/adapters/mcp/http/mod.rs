//! Streamable HTTP.
//!
//! rmcp manages the session: handshake, lists, notifications, the server's own stream. A `tools/call` is sent
//! separately by [`direct`], over the same session and pool. Through rmcp, a call costs three times as much CPU (two
//! JSON trees, six task switches). Only `direct` knows whether the body was handed to the network.

mod body;
pub(super) mod direct;
mod headers;
mod media;
mod redirect;
mod refused;
mod tap;

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

pub(super) use self::tap::Tap;
pub(super) use crate::adapters::upstream::why;
use crate::adapters::upstream::{Limits, is_loopback};

/// Requests uncompressed bodies. Without this value, every encoding is acceptable (RFC 9110 section 12.5.3).
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// Maximum concurrent POSTs of rmcp on one connection. Its default of 16 lets slow requests block others.
const CONCURRENT: usize = 256;
/// Idle connections are closed after this. A server may close an older one just as gavel uses it, and the call would be
/// in doubt. The shortest common keep-alive is 5 s (Node, actix, uvicorn).
const IDLE: Duration = Duration::from_secs(4);
/// Connect timeout.
const CONNECT: Duration = Duration::from_secs(5);
/// The limits for connections to a server on this machine.
const PLAIN: Limits = Limits {
    connect: CONNECT,
    idle: IDLE,
    kept: CONCURRENT,
};

/// A pooled client for one server, without retries. Redirects are followed only by `tap`, and only on the same origin.
///
/// # Errors
/// TLS could not be configured.
pub(super) fn client(url: &Url) -> Result<reqwest::Client, String> {
    // If a provider is already installed, that one is used; gavel has only one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(CONCURRENT);
    if is_loopback(url) {
        // A proxy from the environment is not used for this machine.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| error.to_string())
}

/// The configured headers, marked as sensitive so that they are not printed.
///
/// # Errors
/// Never for headers from the configuration, which has already validated them.
pub(super) fn headers(configured: &[(HeaderName, SecretString)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let mut value =
            HeaderValue::from_str(value.expose_secret()).map_err(|_| format!("header {name} is invalid"))?;
        value.set_sensitive(true);
        headers.insert(name.clone(), value);
    }
    Ok(headers)
}

/// rmcp's transport over `tap`.
pub(super) fn transport(tap: Tap, url: &Url, headers: &HeaderMap) -> StreamableHttpClientTransport<Tap> {
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .max_concurrent_requests(CONCURRENT)
        // A lost session is replaced by the supervisor, which also lists the tools again. rmcp must not decide to send
        // anything twice.
        .reinit_on_expired_session(false)
        .custom_headers(
            headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        );
    StreamableHttpClientTransport::with_client(tap, config)
}

/// An error of rmcp's transport, for an operator.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => why(error),
        Some(StreamableHttpError::UnexpectedServerResponse(words)) => words.clone().into_owned(),
        Some(StreamableHttpError::SessionExpired) => "the server no longer knows the session (HTTP 404)".to_owned(),
        _ => error.to_string(),
    }
}
