//! Streamable HTTP: each request is one POST, and its answer is JSON or a stream of events.

mod answer;
mod body;
mod headers;
mod media;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::answers::Held;
use super::attempt::{Answered, Attempt, Lost, Outbound};
use super::connection::place;
use super::inbox::Inbox;
use gavel_upstream::handover::SendGate;
use gavel_upstream::upstream::{GatedBody, Limits, Plain, Response, is_loopback, why};

/// Requests uncompressed bodies. Without this value, every encoding is acceptable (RFC 9110 section 12.5.3).
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// Maximum idle connections.
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
/// Maximum redirects per request.
const REDIRECTS: u32 = 3;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A server over HTTP.
pub(super) struct Http {
    client: reqwest::Client,
    /// For a server on this machine.
    plain: Option<Arc<Plain>>,
    inbox: Arc<Inbox>,
    address: ArcSwap<Address>,
}

/// Where requests go. It changes only in the handshake, and by redirects of requests that are no calls.
#[derive(Clone)]
struct Address {
    url: Url,
    /// The same for [`Plain`].
    target: Option<hyper::Uri>,
    /// Headers of every message: the configured ones, media types, session, version.
    headers: HeaderMap,
}

impl Http {
    /// # Errors
    /// TLS could not be configured, or a configured header is invalid.
    pub(super) fn new(url: &Url, configured: &[(HeaderName, SecretString)], inbox: Arc<Inbox>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in configured {
            // Marked as sensitive, so that it is not printed.
            let mut value =
                HeaderValue::from_str(value.expose_secret()).map_err(|_| format!("header {name} is invalid"))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        Ok(Self {
            client: client(url)?,
            plain: Plain::new(url, PLAIN),
            inbox,
            address: ArcSwap::from_pointee(Address {
                url: url.clone(),
                target: Plain::target(url),
                headers,
            }),
        })
    }

    /// The same server before any handshake, over the same pool.
    pub(super) fn again(&self) -> Self {
        Self {
            client: self.client.clone(),
            plain: self.plain.clone(),
            inbox: self.inbox.clone(),
            address: ArcSwap::new(self.address.load_full()),
        }
    }

    /// From now on, every message names this protocol version.
    pub(super) fn negotiated(&self, version: &str) {
        if let Ok(version) = HeaderValue::from_str(version) {
            self.change(|address| drop(address.headers.insert(VERSION, version)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Address)) {
        let mut address = Address::clone(&self.address.load());
        change(&mut address);
        self.address.store(Arc::new(address));
    }

    fn has_session(&self) -> bool {
        self.address.load().headers.contains_key(SESSION)
    }

    /// Sends a request, and waits for its answer.
    pub(super) async fn exchange(&self, request: Outbound<'_>, held: Held<'_>) -> Answered {
        let response = match self.post(&request).await {
            Ok(response) => response,
            Err(attempt) => return attempt.into(),
        };
        if request.method == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            let mut session = session.clone();
            session.set_sensitive(true);
            self.change(|address| drop(address.headers.insert(SESSION, session)));
        }
        self.read(response, request.id, held).await
    }

    /// Posts a request. One that is no call has no effect, so it follows redirects on the same origin.
    async fn post(&self, request: &Outbound<'_>) -> Result<Response, Attempt> {
        if request.call.is_some() {
            return self.send(request, request.gate).await;
        }
        for _ in 0..=REDIRECTS {
            let response = self.send(request, &SendGate::default()).await?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            let to = self.redirect(status, response.headers());
            let to = to.map_err(Attempt::unreadable)?;
            if status == StatusCode::SEE_OTHER {
                let words = format!("the server answered HTTP {status}, which leads to `{}`", place(&to));
                return Err(Attempt::unreadable(words));
            }
            self.change(|address| {
                address.target = Plain::target(&to);
                address.url = to;
            });
        }
        Err(Attempt::unreadable(format!(
            "the server redirects more than {REDIRECTS} times"
        )))
    }

    async fn send(&self, request: &Outbound<'_>, gate: &SendGate) -> Result<Response, Attempt> {
        let (address, body) = (self.address.load_full(), request.body.clone());
        let with_names = request.is_modern.then(|| {
            let mut headers = address.headers.clone();
            headers.insert("mcp-method", HeaderValue::from_static(request.method));
            if let Some(call) = request.call {
                headers::add(&mut headers, call);
            }
            headers
        });
        let headers = with_names.as_ref().unwrap_or(&address.headers);
        let sent = match (&self.plain, &address.target) {
            (Some(plain), Some(target)) => {
                let posted = plain.post(target, headers, body, gate).await;
                posted.map_err(|error| error.to_string())
            }
            _ => {
                let mut request = reqwest::Request::new(Method::POST, address.url.clone());
                request.headers_mut().clone_from(headers);
                *request.body_mut() = Some(reqwest::Body::wrap(GatedBody::new(body, gate)));
                let response = self.client.execute(request).await;
                response.map(Response::from).map_err(|error| why(&error))
            }
        };
        sent.map_err(|words| match gate.is_sent() {
            true => Attempt::Lost(Lost::Connection, words),
            false => Attempt::NotSent(Lost::Connection, words),
        })
    }

    /// The target of a redirect, which must have the same origin.
    ///
    /// # Errors
    /// A message: the target has another origin, which must not receive this origin's credentials, or there is no valid
    /// target.
    fn redirect(&self, status: StatusCode, headers: &HeaderMap) -> Result<Url, String> {
        let from = &self.address.load().url;
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(to) = location.and_then(|location| from.join(location).ok()) else {
            return Err(format!(
                "the server answered HTTP {status} without a `location` that is an address"
            ));
        };
        if to.origin() == from.origin() {
            return Ok(to);
        }
        Err(format!(
            "the server answered HTTP {status}, which leads to `{}`; redirects to another origin are not followed; configure \
             the final address",
            place(&to)
        ))
    }

    fn request(&self, method: Method) -> reqwest::RequestBuilder {
        let address = self.address.load();
        let mut request = reqwest::Request::new(method, address.url.clone());
        request.headers_mut().clone_from(&address.headers);
        reqwest::RequestBuilder::from_parts(self.client.clone(), request)
    }

    /// Posts a message that has no answer.
    pub(super) fn notify(&self, body: String) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let request = self.request(Method::POST).body(body);
        async move {
            let response = request.send().await.map_err(|error| why(&error))?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(format!("HTTP {status}")),
            }
        }
    }

    /// The same, alongside everything else.
    pub(super) fn notify_aside(&self, body: String) -> impl Future<Output = ()> + Send + 'static {
        self.notify(body).map(|sent| {
            if let Err(error) = sent {
                tracing::debug!(error, "a message outside of a call was not delivered");
            }
        })
    }

    /// Ends the session, if there is one, alongside everything else.
    pub(super) fn close(&self) {
        if self.has_session() {
            let request = self.request(Method::DELETE);
            self.inbox.background.spawn(async move {
                // The server may not support it, and forgets the session at some time anyway.
                let _ = request.send().await;
            });
        }
    }
}

/// A pooled client for one server, without retries and redirects.
fn client(url: &Url) -> Result<reqwest::Client, String> {
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
