//! One GET request and its answer, to the addresses that the guard has checked and to no other.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use gavel_mcp_base::{ToolError, internal};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, LOCATION};
use reqwest::{Client, StatusCode, redirect, retry};
use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::error::{no_answer, too_large};
use crate::guard::Target;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPTED: &str = "text/html,application/xhtml+xml,text/plain,application/json,application/xml;q=0.9,*/*;q=0.1";

/// Sends requests. Nothing but the TLS settings is shared between two of them: no cookie, no connection.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    tls: ClientConfig,
}

/// An answer whose body has not been read.
#[derive(Debug)]
pub(crate) struct Response(reqwest::Response);

/// The checked addresses, whatever the name.
#[derive(Debug)]
struct Pinned(Vec<SocketAddr>);

impl Resolve for Pinned {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

impl Http {
    /// Reads the host's root certificates.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_platform_verifier())
            .context("TLS cannot be set up")?
            .with_no_client_auth();
        Ok(Self { tls })
    }

    /// Sends a request once. A client of its own keeps it from every address but the target's: reqwest does not ask the
    /// resolver for a host that is an address, which is the target's too.
    pub(crate) async fn get(&self, target: &Target) -> Result<Response, ToolError> {
        let client = Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .dns_resolver(Pinned(target.addresses.clone()))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_proxy()
            .http1_only()
            // The limit is for the bytes on the wire, so they are decoded only after they were counted.
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .pool_max_idle_per_host(0)
            .user_agent(concat!("gavel-mcp-web/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| {
            tracing::error!(%error, "the HTTP client cannot be created");
            internal()
        })?;
        let request = client
            .get(target.url.clone())
            .header(ACCEPT, ACCEPTED)
            .header(ACCEPT_ENCODING, "gzip");
        request.send().await.map(Response).map_err(|error| {
            let words = anyhow::Error::from(error.without_url());
            tracing::debug!(error = format!("{words:#}"), "no answer");
            no_answer("The site did not answer, or not in HTTP.")
        })
    }
}

impl Response {
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// A header, if it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.0.headers().get(name)?.to_str().ok()
    }

    /// Where the answer leads. Some sites write it in UTF-8, which other headers are not.
    pub(crate) fn location(&self) -> Option<Cow<'_, str>> {
        let location = self.0.headers().get(LOCATION)?;
        Some(String::from_utf8_lossy(location.as_bytes()))
    }

    /// The body as it is on the wire, of at most `most` bytes.
    pub(crate) async fn body(mut self, most: usize) -> Result<Vec<u8>, ToolError> {
        if self.0.content_length().is_some_and(|length| length > most as u64) {
            return Err(too_large("What the site sends", most));
        }
        let mut body = Vec::new();
        loop {
            match self.0.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= most => body.extend_from_slice(&chunk),
                Ok(Some(_)) => return Err(too_large("What the site sends", most)),
                Ok(None) => return Ok(body),
                Err(error) => {
                    tracing::debug!(error = %error.without_url(), "an answer broke off");
                    return Err(no_answer("The site's answer broke off."));
                }
            }
        }
    }
}
