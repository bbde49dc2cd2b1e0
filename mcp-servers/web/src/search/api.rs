//! One request to Google's API, and its answer as JSON.

use std::time::Duration;

use anyhow::Context;
use gavel_mcp_base::ToolError;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, StatusCode, redirect, retry};
use rustls::crypto::{CryptoProvider, ring};
use serde::de::DeserializeOwned;
use url::{Host, Url};

use crate::error::{rate_limited, search_refused, search_unavailable};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than any expected answer, in bytes.
const MAX: usize = 4 << 20;
/// The wait if the service names none, in seconds.
const WAIT: u64 = 30;

/// The connections to Google.
#[derive(Debug, Clone)]
pub(super) struct Api {
    client: Client,
    /// For a stand-in or a gateway on this machine, and for the machine's tokens.
    direct: Client,
}

impl Api {
    pub(super) fn new() -> anyhow::Result<Self> {
        if CryptoProvider::get_default().is_none() {
            // Fails only if another caller was faster, which is fine.
            let _ = ring::default_provider().install_default();
        }
        let builder = || {
            Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                // Credentials must go only to their destination.
                .redirect(redirect::Policy::none())
                .retry(retry::never())
                .referer(false)
                .user_agent(concat!("gavel-mcp-web/", env!("CARGO_PKG_VERSION")))
        };
        let client = builder().build().context("the HTTP client cannot be created")?;
        let direct = builder()
            .no_proxy()
            .build()
            .context("the HTTP client cannot be created")?;
        Ok(Self { client, direct })
    }

    /// A client for the URL: plain http is for this machine, so no proxy is between.
    pub(super) fn client(&self, url: &Url) -> &Client {
        let is_direct = url.scheme() == "http" || matches!(url.host(), Some(Host::Ipv4(a)) if a.is_loopback());
        if is_direct { &self.direct } else { &self.client }
    }

    /// Sends a request once. The log has neither its URL nor its headers nor its body.
    pub(super) async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ToolError> {
        let unavailable = |error: reqwest::Error| {
            let words = anyhow::Error::from(error.without_url());
            tracing::warn!(error = format!("{words:#}"), "no answer from the search service");
            search_unavailable()
        };
        let mut response = request.send().await.map_err(unavailable)?;
        let status = response.status();
        if !status.is_success() {
            tracing::warn!(%status, "the search service answered with an error");
            return Err(refusal(status, response.headers()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
            if body.len() + chunk.len() > MAX {
                tracing::warn!("an answer of the search service exceeds the limit");
                return Err(search_unavailable());
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|error| {
            tracing::warn!(%error, "an answer of the search service cannot be read");
            search_unavailable()
        })
    }
}

fn refusal(status: StatusCode, headers: &HeaderMap) -> ToolError {
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            rate_limited(Duration::from_secs(seconds.unwrap_or(WAIT)))
        }
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            search_refused(status.as_u16())
        }
        _ => search_unavailable(),
    }
}
