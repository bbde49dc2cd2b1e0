//! One request to GitHub and its answer, with limits. Other modules decide about repeats: nothing here sends twice.

use std::time::Duration;

use anyhow::Context;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, StatusCode, redirect, retry};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use gavel_mcp_base::settings::is_loopback;

/// The version of the REST API that this server is written for.
const VERSION: &str = "2022-11-28";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be silent, so that a call's time suffices for a second attempt.
const SILENCE: Duration = Duration::from_secs(10);
/// Larger than any expected answer, in bytes: a tree of 100,000 entries.
const MAX_BODY: usize = 32 << 20;

/// The connections to GitHub; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Http(Client);

/// A complete answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// A header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lost {
    /// No connection was established: GitHub did not receive the request.
    NotSent,
    /// It may have been received and executed.
    Unknown,
    /// The answer is longer than [`MAX_BODY`].
    TooLarge,
}

impl Http {
    pub(crate) fn new(api: &Url) -> anyhow::Result<Self> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another caller was faster, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE)
            // Credentials must go only to their destination.
            .redirect(redirect::Policy::none())
            .referer(false)
            .retry(retry::never())
            .user_agent(concat!("gavel-mcp-github/", env!("CARGO_PKG_VERSION")));
        if is_loopback(api) {
            builder = builder.no_proxy();
        }
        builder.build().map(Self).context("the HTTP client cannot be created")
    }

    /// Sends a request once. The log has neither its URL nor its headers.
    pub(crate) async fn send(&self, request: Request, deadline: Instant) -> Result<Reply, Lost> {
        match tokio::time::timeout_at(deadline, self.exchange(request)).await {
            Ok(Ok(Some(reply))) => Ok(reply),
            Ok(Ok(None)) => {
                tracing::warn!("an answer of GitHub exceeds the limit");
                Err(Lost::TooLarge)
            }
            Ok(Err(error)) => {
                let error = error.without_url();
                let lost = match error.is_connect() || error.is_builder() {
                    true => Lost::NotSent,
                    false => Lost::Unknown,
                };
                let words = anyhow::Error::from(error);
                tracing::warn!(?lost, error = format!("{words:#}"), "no answer from GitHub");
                Err(lost)
            }
            Err(_) => {
                tracing::warn!("no answer from GitHub in time");
                Err(Lost::Unknown)
            }
        }
    }

    /// `None` if the answer is too long.
    async fn exchange(&self, request: Request) -> reqwest::Result<Option<Reply>> {
        let mut response = self.0.execute(request).await?;
        let mut reply = Reply {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            body: Vec::new(),
        };
        while let Some(chunk) = response.chunk().await? {
            if reply.body.len() + chunk.len() > MAX_BODY {
                return Ok(None);
            }
            reply.body.extend_from_slice(&chunk);
        }
        Ok(Some(reply))
    }
}

/// Parses an answer.
pub(crate) fn parsed<T: DeserializeOwned>(reply: &Reply) -> Option<T> {
    serde_json::from_slice(&reply.body)
        .inspect_err(|error| {
            let (line, column) = (error.line(), error.column());
            tracing::warn!(line, column, "an answer of GitHub cannot be read");
        })
        .ok()
}

/// A request without credentials.
pub(crate) fn new_request(method: Method, url: Url) -> Request {
    let mut request = Request::new(method, url);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("x-github-api-version", HeaderValue::from_static(VERSION));
    request
}

/// `base` with further escaped segments.
pub(crate) fn at(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}
