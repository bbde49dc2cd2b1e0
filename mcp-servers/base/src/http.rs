//! One request to a service that gets credentials, and its answer, with limits. Nothing here sends twice.

use std::time::Duration;

use anyhow::Context;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Body, Client, Method, Request, StatusCode, redirect, retry};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use crate::settings::is_loopback;
use crate::{Secret, ToolError, internal};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest `Retry-After` that is honored, in seconds: a day.
const MAX_RETRY_AFTER: u64 = 86_400;

/// The connections to a service; clones share them.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    /// For what is on this machine: without a proxy.
    direct: Client,
    service: &'static str,
    most: usize,
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
pub enum Lost {
    /// No connection was established: the service did not receive the request.
    NotSent,
    /// It may have been received and executed.
    Unknown,
    /// It was executed, and the answer is longer than any that is expected.
    TooLarge,
}

impl Reply {
    /// A header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// `Retry-After` in seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds: u64 = self.header(RETRY_AFTER.as_str())?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds.min(MAX_RETRY_AFTER)))
    }

    /// The object in the body. The log says only where it cannot be read.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        let parsed = serde_json::from_slice(&self.body).inspect_err(|error| {
            let (line, column) = (error.line(), error.column());
            tracing::warn!(line, column, "an answer cannot be read");
        });
        parsed.ok()
    }
}

impl Http {
    /// Connections to `service`, which the log names, for the program `agent`. An answer has at most so many bytes.
    pub fn new(
        service: &'static str,
        agent: &'static str,
        most: usize,
        silence: Option<Duration>,
    ) -> anyhow::Result<Self> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another caller was faster, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let builder = || {
            let builder = Client::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                // Credentials must go only to their destination.
                .redirect(redirect::Policy::none())
                .referer(false)
                .retry(retry::never())
                .user_agent(agent);
            match silence {
                Some(silence) => builder.read_timeout(silence),
                None => builder,
            }
        };
        let created = "the HTTP client cannot be created";
        Ok(Self {
            client: builder().build().context(created)?,
            direct: builder().no_proxy().build().context(created)?,
            service,
            most,
        })
    }

    /// Sends a request once. The log has neither its URL nor its headers nor its body.
    pub async fn send(&self, request: Request, deadline: Instant) -> Result<Reply, Lost> {
        let service = self.service;
        match tokio::time::timeout_at(deadline, self.exchange(request)).await {
            Ok(Ok(Some(reply))) => Ok(reply),
            Ok(Ok(None)) => {
                tracing::warn!("an answer of {service} exceeds the limit");
                Err(Lost::TooLarge)
            }
            Ok(Err(error)) => {
                let error = error.without_url();
                let lost = match error.is_connect() || error.is_builder() {
                    true => Lost::NotSent,
                    false => Lost::Unknown,
                };
                let error = anyhow::Error::from(error);
                tracing::warn!(?lost, error = format!("{error:#}"), "no answer from {service}");
                Err(lost)
            }
            Err(_) => {
                tracing::warn!("no answer from {service} in time");
                Err(Lost::Unknown)
            }
        }
    }

    /// `None` if the answer is too long.
    async fn exchange(&self, request: Request) -> reqwest::Result<Option<Reply>> {
        let url = request.url();
        // Plain http is for this machine and for that of its cloud.
        let client = match url.scheme() == "http" || is_loopback(url) {
            true => &self.direct,
            false => &self.client,
        };
        let mut response = client.execute(request).await?;
        let mut reply = Reply {
            status: response.status(),
            headers: std::mem::take(response.headers_mut()),
            body: Vec::new(),
        };
        while let Some(chunk) = response.chunk().await? {
            if reply.body.len() + chunk.len() > self.most {
                return Ok(None);
            }
            reply.body.extend_from_slice(&chunk);
        }
        Ok(Some(reply))
    }
}

/// A POST request with a body of this media type, without credentials.
pub fn post(url: Url, media_type: &'static str, body: impl Into<Body>) -> Request {
    let mut request = Request::new(Method::POST, url);
    let media_type = HeaderValue::from_static(media_type);
    request.headers_mut().insert(CONTENT_TYPE, media_type);
    *request.body_mut() = Some(body.into());
    request
}

/// The value of a header that is a credential, which no log shows.
pub fn credential(value: &str) -> Result<HeaderValue, ToolError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| internal())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The value of `Authorization` for a token.
pub fn bearer(token: &Secret) -> Result<HeaderValue, ToolError> {
    credential(&format!("Bearer {}", token.expose()))
}

/// How often, and until when, a request is sent again that may be repeated.
#[derive(Debug)]
pub struct Retries {
    begun: u32,
    most: u32,
    deadline: Instant,
}

impl Retries {
    /// The first of so many attempts begins.
    pub fn new(most: u32, deadline: Instant) -> Self {
        let begun = 1;
        Self { begun, most, deadline }
    }

    /// Waits before the next attempt: as long as the service says, or longer each time; random, so that callers do not
    /// retry together. Returns false if no attempt or no time is left.
    pub async fn again(&mut self, reply: Option<&Reply>) -> bool {
        let own = Duration::from_millis(250 * 2_u64.pow(self.begun.min(6)));
        let own = own.mul_f64(0.5 + fastrand::f64() / 2.0);
        let wait = reply.and_then(Reply::retry_after).map_or(own, |said| said.max(own));
        if self.begun >= self.most || Instant::now() + wait >= self.deadline {
            return false;
        }
        tokio::time::sleep(wait).await;
        self.begun += 1;
        true
    }
}

/// `base` with further escaped segments.
pub fn at(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}
