//! Requests to GitHub.

use std::time::Duration;

use gavel_mcp_base::settings::is_loopback;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, Request};
use url::Url;

pub(crate) use gavel_mcp_base::http::{Http, Lost, Reply, at};

/// The version of the REST API that this server is written for.
const VERSION: &str = "2022-11-28";
/// How long a connection may be silent, so that a call's time suffices for a second attempt.
const SILENCE: Duration = Duration::from_secs(10);
/// Larger than any expected answer, in bytes: a tree of 100,000 entries.
const MAX_BODY: usize = 32 << 20;

/// The connections to this API.
pub(crate) fn connections(api: &Url) -> anyhow::Result<Http> {
    let agent = concat!("gavel-mcp-github/", env!("CARGO_PKG_VERSION"));
    Http::new("GitHub", agent, MAX_BODY, Some(SILENCE), is_loopback(api))
}

/// A request without credentials.
pub(crate) fn new_request(method: Method, url: Url) -> Request {
    let mut request = Request::new(method, url);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("x-github-api-version", HeaderValue::from_static(VERSION));
    request
}
