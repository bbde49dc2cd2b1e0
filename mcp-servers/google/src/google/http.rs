//! One request to Google and its answer, with limits. Other modules decide about retries: nothing here sends twice.

use std::time::Duration;

use anyhow::Context;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Request, StatusCode, redirect, retry};
use tokio::time::Instant;

use crate::settings::Places;
use gavel_mcp_base::settings::is_loopback;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger than any expected answer, in bytes.
const MAX_BODY: usize = 2 << 20;
/// The longest `Retry-After` that is honored, in seconds.
const MAX_RETRY_AFTER: u64 = 3600;

/// The connections to Google; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Http(Client);

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// No connection was established: Google did not receive the request.
    NotSent,
    /// It may have been received and executed.
    Unknown,
}

impl Http {
    pub(crate) fn new(places: &Places) -> anyhow::Result<Self> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another caller was faster, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let all = [
            &places.gmail,
            &places.calendar,
            &places.token,
            &places.auth,
            &places.revoke,
        ];
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A token must go only to its destination.
            .redirect(redirect::Policy::none())
            .referer(false)
            .retry(retry::never())
            .user_agent(concat!("gavel-mcp-google/", env!("CARGO_PKG_VERSION")));
        if all.into_iter().any(is_loopback) {
            builder = builder.no_proxy();
        }
        builder.build().map(Self).context("the HTTP client cannot be created")
    }

    /// Sends a request once. Its URL is not logged: it may contain users' addresses.
    pub(crate) async fn send(&self, request: Request, deadline: Instant) -> Result<Reply, Lost> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        match tokio::time::timeout_at(deadline, self.exchange(request)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let error = error.without_url();
                let lost = if error.is_connect() || error.is_builder() {
                    Lost::NotSent
                } else {
                    Lost::Unknown
                };
                let words = anyhow::Error::from(error);
                tracing::warn!(%host, ?lost, error = format!("{words:#}"), "no answer from Google");
                Err(lost)
            }
            Err(_) => {
                tracing::warn!(%host, "no answer from Google in time");
                Err(Lost::Unknown)
            }
        }
    }

    async fn exchange(&self, request: Request) -> reqwest::Result<Reply> {
        let mut response = self.0.execute(request).await?;
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|seconds| seconds.trim().parse().ok());
        let mut reply = Reply {
            status: response.status(),
            retry_after: retry_after.map(|seconds: u64| Duration::from_secs(seconds.min(MAX_RETRY_AFTER))),
            body: Vec::new(),
        };
        while let Some(chunk) = response.chunk().await? {
            if reply.body.len() + chunk.len() > MAX_BODY {
                tracing::warn!("an answer of Google exceeds the limit and was cut off");
                break;
            }
            reply.body.extend_from_slice(&chunk);
        }
        Ok(reply)
    }
}

/// How long to wait: Google's value, or longer each time; random, so that callers do not retry together.
pub(crate) fn pause(attempt: u32, reply: Option<&Reply>) -> Duration {
    let own = Duration::from_millis(250 * 2_u64.pow(attempt.min(6)));
    let own = own.mul_f64(0.5 + fastrand::f64() / 2.0);
    reply
        .and_then(|reply| reply.retry_after)
        .map_or(own, |said| said.max(own))
}
