//! The HTTP client, and one exchange through it with a limit on every wait and on every byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::Request;
use reqwest::header::{HeaderMap, HeaderValue, USER_AGENT};
use tokio::time::timeout_at;
use url::Url;

use super::config_error::ConfigError;
use super::failure::{Failure, Health, describe};
use super::limits::{held, no_room};
use super::timeouts::Timeouts;
use crate::domain::budget::Held;
use gavel_upstream::handover::SendGate;
use gavel_upstream::upstream::{Limits, NoResponse, Plain, Response, is_loopback};

/// Longer error bodies are not read.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// How long an unused connection is kept, and how many are kept for each thread.
const IDLE: Duration = Duration::from_secs(90);
const KEPT: usize = 256;

const AGENT: &str = concat!("gavel/", env!("CARGO_PKG_VERSION"));

/// The destination of a request.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: Url,
    /// The target for the request line, if it can be written as one.
    line: Option<hyper::Uri>,
}

impl Target {
    pub(super) fn new(url: Url) -> Self {
        Self {
            line: Plain::target(&url),
            url,
        }
    }
}

/// The HTTP client for requests to models.
pub(super) struct Client {
    general: reqwest::Client,
    /// For a gateway or a stand-in model on this machine.
    plain: Option<Arc<Plain>>,
    connect: Duration,
}

impl Client {
    /// # Errors
    /// The system's TLS roots cannot be read.
    pub(super) fn new(timeouts: &Timeouts, origin: &Url) -> Result<Self, ConfigError> {
        let limits = Limits {
            connect: timeouts.connect,
            idle: IDLE,
            kept: KEPT,
        };
        Ok(Self {
            general: build(timeouts, origin.scheme() == "http", is_loopback(origin))?,
            plain: Plain::new(origin, limits),
            connect: timeouts.connect,
        })
    }

    pub(super) fn general(&self) -> &reqwest::Client {
        &self.general
    }

    async fn post(&self, target: &Target, mut headers: HeaderMap, body: Bytes) -> Result<Response, Failure> {
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let (Some(plain), Some(line)) = (&self.plain, &target.line) {
            let sent = plain.post(line, &headers, body, &SendGate::default()).await;
            return sent.map_err(|error| match error {
                NoResponse::ConnectTimeout(limit) => Failure::timeout("no connection", limit),
                error => Failure::connection(error.to_string()),
            });
        }
        let mut request = Request::new(reqwest::Method::POST, target.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        match self.general.execute(request).await {
            Ok(response) => Ok(response.into()),
            Err(error) => Err(no_response(error, self.connect)),
        }
    }
}

/// `connect` is the timeout that the client enforces itself.
fn no_response(error: reqwest::Error, connect: Duration) -> Failure {
    match error.is_timeout() && error.is_connect() {
        true => Failure::timeout("no connection", connect),
        false => Failure::connection(describe(error)),
    }
}

/// Builds the pooled client. `plain` means an endpoint without TLS: no root certificates are loaded.
pub(super) fn build(timeouts: &Timeouts, plain: bool, direct: bool) -> Result<reqwest::Client, ConfigError> {
    // The binary installs ring. Library users and tests need not do so.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread installed a provider first, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut builder = reqwest::Client::builder()
        .user_agent(AGENT)
        .connect_timeout(timeouts.connect)
        // A redirect would send the key to another host.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_idle_timeout(IDLE);
    builder = if plain {
        builder.http1_only().tls_certs_only([])
    } else {
        builder
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(Duration::from_secs(10))
    };
    if direct {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| ConfigError::Client(describe(error)))
}

/// Limits a wait by a timeout and by the deadline, and reports which one was reached.
pub(super) struct Waiting<'a> {
    pub(super) timeouts: &'a Timeouts,
    pub(super) deadline: Instant,
    pub(super) begun: Instant,
}

impl Waiting<'_> {
    /// Sends the request and waits for the response head.
    pub(super) async fn send(&self, client: &reqwest::Client, request: Request) -> Result<Response, Failure> {
        let connect = self.timeouts.connect;
        let head = async {
            let response = client.execute(request).await;
            response
                .map(Response::from)
                .map_err(|error| no_response(error, connect))
        };
        self.head(head).await
    }

    /// Sends a POST and waits for the response head.
    pub(super) async fn post(
        &self,
        client: &Client,
        target: &Target,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Failure> {
        self.head(client.post(target, headers, body)).await
    }

    async fn head(&self, head: impl Future<Output = Result<Response, Failure>>) -> Result<Response, Failure> {
        let first_byte = self.timeouts.first_byte;
        match self.wait(first_byte, head).await {
            Ok(head) => head,
            Err(over) => Err(over.unwrap_or_else(|| Failure::timeout("no answer", first_byte))),
        }
    }

    /// Waits for the next piece of the body, or `None` at the end.
    pub(super) async fn piece(&self, response: &mut Response) -> Result<Option<Bytes>, Failure> {
        let idle = self.timeouts.idle;
        match self.wait(idle, response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece),
            Ok(Err(error)) => Err(Failure::connection(error.to_string())),
            Err(over) => Err(over.unwrap_or_else(|| Failure::timeout("the answer stopped: nothing more", idle))),
        }
    }

    /// Reads the whole body, up to `cap` bytes.
    pub(super) async fn body(&self, mut response: Response, cap: usize, held: &mut Held<'_>) -> Result<Bytes, Failure> {
        if response.content_length().is_some_and(|length| length > cap as u64) {
            return Err(too_large(cap));
        }
        let Some(first) = self.piece(&mut response).await? else {
            return Ok(Bytes::new());
        };
        if first.len() > cap {
            return Err(too_large(cap));
        }
        held.add(first.len()).map_err(no_room)?;
        // Most bodies arrive in one piece. Such a body is neither copied nor waited for again.
        if response.is_read() {
            return Ok(first);
        }
        let Some(mut next) = self.piece(&mut response).await? else {
            return Ok(first);
        };
        let expected = response
            .content_length()
            .and_then(|length| usize::try_from(length).ok());
        let mut body = Vec::with_capacity(expected.unwrap_or(first.len() * 2).min(cap));
        body.extend_from_slice(&first);
        loop {
            if body.len() + next.len() > cap {
                return Err(too_large(cap));
            }
            held.add(next.len()).map_err(no_room)?;
            body.extend_from_slice(&next);
            match self.piece(&mut response).await? {
                Some(more) => next = more,
                None => return Ok(body.into()),
            }
        }
    }

    /// Reads the body of an error. If it is slow or too long, it is ignored: this is not a separate failure.
    pub(super) async fn error_body(&self, response: Response) -> Bytes {
        let brief = Waiting {
            deadline: self.deadline.min(Instant::now() + self.timeouts.connect),
            ..*self
        };
        // Error bodies are too short to need a memory budget of their own.
        let mut held = held(("", ""));
        brief
            .body(response, MAX_ERROR_BODY, &mut held)
            .await
            .unwrap_or_default()
    }

    /// `Err(None)`: the limit was reached. `Err(Some(failure))`: the deadline was reached.
    async fn wait<T>(&self, limit: Duration, wait: impl Future<Output = T>) -> Result<T, Option<Failure>> {
        let now = Instant::now();
        let limit = now.checked_add(limit).unwrap_or(self.deadline);
        let until = limit.min(self.deadline);
        timeout_at(until.into(), wait).await.map_err(|_| {
            (self.deadline <= limit).then(|| {
                // An endpoint that was silent for longer than the connect timeout counts as unhealthy.
                let waited = Instant::now().duration_since(self.begun);
                Failure::deadline(if waited > self.timeouts.connect {
                    Health::Sick
                } else {
                    Health::Unknown
                })
            })
        })
    }
}

pub(super) fn too_large(cap: usize) -> Failure {
    Failure::malformed(format!("the answer is larger than {cap} bytes"))
}
