//! Streamable HTTP.
//!
//! rmcp holds the session: handshake, lists, notifications, the server's own stream. A `tools/call`
//! goes out beside it, over the same session and pool, straight from [`direct`]: through rmcp a
//! call costs three times as much CPU (two JSON trees, six task switches), and only here is it
//! known whether the body was handed to the network.

mod answer;
mod body;
pub(super) mod direct;
mod headers;
mod media;
mod redirect;
mod refusal;
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

/// Bodies are asked for as they are: without this word every encoding is acceptable (RFC 9110 section 12.5.3).
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// POSTs of rmcp at one time on one connection; its default of 16 lets slow requests block others.
const CONCURRENT: usize = 256;
/// A connection idle for longer may be closed by the server just as we use it, and the call would
/// be in doubt; the shortest common keep-alive is 5 s (Node, actix, uvicorn).
const IDLE: Duration = Duration::from_secs(4);
/// A server that does not take a connection in this time is not there.
const CONNECT: Duration = Duration::from_secs(5);
/// The same for the connections to a server on this machine.
const PLAIN: Limits = Limits {
    connect: CONNECT,
    idle: IDLE,
    kept: CONCURRENT,
};

/// A client for one server: pooled, no retries; redirects are followed by `tap` alone, and to no other origin.
///
/// # Errors
/// TLS could not be set up.
pub(super) fn client(url: &Url) -> Result<reqwest::Client, String> {
    // Whoever came first has set the provider; there is only one in gavel.
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
        // A proxy of the environment is for the world outside.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| error.to_string())
}

/// The configured headers, marked so that they do not print.
///
/// # Errors
/// Never for headers that came through the configuration, which has parsed them.
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
        // A lost session is replaced by the supervisor, who lists the tools again as well; what rmcp
        // would send a second time by itself is not for it to decide.
        .reinit_on_expired_session(false)
        .custom_headers(
            headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        );
    StreamableHttpClientTransport::with_client(tap, config)
}

/// An error of rmcp's transport for an operator.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => why(error),
        Some(StreamableHttpError::UnexpectedServerResponse(words)) => words.clone().into_owned(),
        Some(StreamableHttpError::SessionExpired) => {
            "the server does not know the session any more (HTTP 404)".to_owned()
        }
        _ => error.to_string(),
    }
}
