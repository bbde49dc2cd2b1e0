//! HTTP to the servers that gavel calls: one response type for both clients, and a connection pool for servers on this
//! machine.
//!
//! All requests use reqwest, except POSTs over plain HTTP to this machine (a sidecar, a gateway, a bundled server).
//! [`plain`] sends those.

use std::cell::Cell;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use url::{Host, Url};

use crate::handover::{NotHandedOver, SendGate};

/// Is this an address of this machine? If so, proxies from the environment are not used for it.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// A response whose head has been received.
pub enum Response {
    /// Through reqwest.
    General(reqwest::Response),
    /// Through [`Plain`].
    Plain(hyper::Response<Incoming>),
}

/// Why reading the body failed. It does not contain the URL, which may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{}", why(.0))]
    General(#[source] reqwest::Error),
    #[error("{}", describe(.0))]
    Plain(#[source] hyper::Error),
}

impl Response {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::General(response) => response.status(),
            Self::Plain(response) => response.status(),
        }
    }

    pub fn headers(&self) -> &HeaderMap {
        match self {
            Self::General(response) => response.headers(),
            Self::Plain(response) => response.headers(),
        }
    }

    /// Bytes of the body that have not been read yet, if known.
    pub fn content_length(&self) -> Option<u64> {
        match self {
            Self::General(response) => response.content_length(),
            Self::Plain(response) => response.body().size_hint().exact(),
        }
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        match self {
            Self::General(response) => response.chunk().await.map_err(BodyError::General),
            Self::Plain(response) => loop {
                let Some(frame) = response.body_mut().frame().await else {
                    return Ok(None);
                };
                // Trailers are skipped.
                if let Ok(data) = frame.map_err(BodyError::Plain)?.into_data() {
                    return Ok(Some(data));
                }
            },
        }
    }

    /// Is it known, without waiting, that the body has been read completely?
    pub fn is_read(&self) -> bool {
        match self {
            Self::General(_) => false,
            Self::Plain(response) => response.body().is_end_stream(),
        }
    }
}

/// The pieces of a body. Most bodies arrive in one, which is not copied.
#[derive(Default)]
pub struct Joined {
    first: Bytes,
    all: Vec<u8>,
}

impl Joined {
    pub fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&piece);
    }

    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }
}

impl From<Joined> for Bytes {
    fn from(joined: Joined) -> Self {
        match joined.all.is_empty() {
            true => joined.first,
            false => joined.all.into(),
        }
    }
}

impl From<reqwest::Response> for Response {
    fn from(response: reqwest::Response) -> Self {
        Self::General(response)
    }
}

/// The innermost cause, which says what happened. Outer errors only say where, and may contain the URL.
pub(super) fn cause(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut innermost = error.source()?;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    Some(innermost.to_string())
}

/// The message of a reqwest error, without the URL.
pub fn why(error: &reqwest::Error) -> String {
    cause(error).unwrap_or_else(|| "the request failed".to_owned())
}

/// The message of a hyper error, which never contains a URL.
fn describe(error: &hyper::Error) -> String {
    cause(error).unwrap_or_else(|| error.to_string())
}

/// A request body in one piece.
pub struct GatedBody<D = Bytes> {
    data: Option<D>,
    gate: SendGate,
}

impl<D> GatedBody<D> {
    pub fn new(data: D, gate: &SendGate) -> Self {
        Self {
            data: Some(data),
            gate: gate.clone(),
        }
    }
}

impl<D: Buf + Unpin> Body for GatedBody<D> {
    type Data = D;
    type Error = NotHandedOver;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<D>, Self::Error>>> {
        let Some(data) = self.data.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(self.gate.pass().map(|()| Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, Buf::remaining) as u64)
    }
}

/// Limits of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connect timeout.
    pub connect: Duration,
    /// How long an unused connection is kept.
    pub idle: Duration,
    /// How many unused connections are kept for each thread.
    pub kept: usize,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum NoResponse {
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    #[error("{}", cause(.0).unwrap_or_else(|| .0.to_string()))]
    Failed(#[source] Error),
}

/// Number of clients. The task that drives a connection runs on the thread that made it, so a request of another thread
/// would wake that thread and then its own: under load a quarter of all CPU time. So each thread has its own client.
const CLIENTS: usize = 16;

/// Pools of connections to one address, one for each thread.
pub struct Plain {
    clients: [Client<HttpConnector, GatedBody<Chain<Bytes, Bytes>>>; CLIENTS],
    connect: Duration,
}

impl Plain {
    /// Returns `None` unless `url` is a plain HTTP address of this machine without credentials.
    pub fn new(url: &Url, limits: Limits) -> Option<Arc<Self>> {
        if url.scheme() != "http" || !is_loopback(url) || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect));
        let client = || {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(limits.idle)
                .pool_max_idle_per_host(limits.kept)
                .pool_timer(TokioTimer::new())
                .build(connector.clone())
        };
        Some(Arc::new(Self {
            clients: std::array::from_fn(|_| client()),
            connect: limits.connect,
        }))
    }

    /// `url` as the pool takes it, without its fragment.
    pub fn target(url: &Url) -> Option<hyper::Uri> {
        url[..url::Position::AfterQuery].parse().ok()
    }

    /// Sends a POST, whose body may have two parts. A pooled connection that turns out to be closed is replaced if the
    /// body has not been taken yet. After that, nothing is sent twice.
    ///
    /// # Errors
    /// [`NoResponse`]. `gate` says whether the server may have received the request.
    pub async fn post(
        &self,
        target: &hyper::Uri,
        headers: &HeaderMap,
        body: Chain<Bytes, Bytes>,
        gate: &SendGate,
    ) -> Result<Response, NoResponse> {
        let mut request = hyper::Request::new(GatedBody::new(body, gate));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = target.clone();
        request.headers_mut().clone_from(headers);
        match self.clients[thread_number() % CLIENTS].request(request).await {
            Ok(response) => Ok(Response::Plain(response)),
            Err(error) if timed_out(&error) => Err(NoResponse::ConnectTimeout(self.connect)),
            Err(error) => Err(NoResponse::Failed(error)),
        }
    }
}

/// Numbers threads in the order of their first request.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
    MINE.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        MINE.set(Some(number));
        number
    })
}

/// Did the connector's time pass? It is the only timeout that this client has.
fn timed_out(error: &Error) -> bool {
    let mut source = error.source().filter(|_| error.is_connect());
    while let Some(inner) = source {
        let io = inner.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut) {
            return true;
        }
        source = inner.source();
    }
    false
}

#[cfg(test)]
mod plain_tests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_of_this_machine_are_distinguished() {
        for (base, local) in [
            ("http://127.0.0.2:1", true),
            ("http://[::1]:1", true),
            ("http://localhost", true),
            ("http://tasks.localhost:1", true),
            ("http://10.0.0.1", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(base).unwrap()), local, "{base}");
        }
    }
}

#[cfg(test)]
mod gated_body_tests {
    #![allow(clippy::unwrap_used)]

    use std::task::Waker;

    use super::*;

    /// Polls the body as an HTTP client does; `None` is its end.
    fn poll(body: &mut GatedBody) -> Option<Result<Bytes, NotHandedOver>> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.map(|data| data.into_data().unwrap())),
            Poll::Pending => panic!("a body in one piece is always there"),
        }
    }

    fn body(gate: &SendGate) -> GatedBody {
        GatedBody::new(Bytes::from_static(b"x"), gate)
    }

    #[test]
    fn a_body_is_taken_once_and_what_was_given_up_not_at_all() {
        let gate = SendGate::default();
        let (mut one, mut other) = (body(&gate), body(&gate));
        assert!(!gate.is_sent());
        assert_eq!(poll(&mut one), Some(Ok(Bytes::from_static(b"x"))));
        assert!(gate.is_sent());
        assert_eq!(poll(&mut one), None);
        assert_eq!(poll(&mut other), Some(Err(NotHandedOver::Already)));

        let gate = SendGate::default();
        let mut late = body(&gate);
        assert!(!gate.give_up());
        assert_eq!(poll(&mut late), Some(Err(NotHandedOver::GivenUp)));
        assert!(!gate.is_sent());
    }
}
