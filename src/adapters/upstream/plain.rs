//! A pool of plain HTTP/1.1 connections to one server on this machine.
//!
//! For a server on the same machine, the general client costs more than the call itself: three quarters of its CPU time
//! is spent in layers that only TLS, proxies and redirects need.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use reqwest::header::{HOST, HeaderMap, HeaderValue};
use tokio::net::TcpStream;
use url::Url;

use super::gated_body::GatedBody;
use super::{Response, describe, is_loopback};
use crate::adapters::handover::SendGate;

/// Limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters) struct Limits {
    /// Connect timeout.
    pub(in crate::adapters) connect: Duration,
    /// How long an unused connection is kept.
    pub(in crate::adapters) idle: Duration,
    /// How many unused connections are kept per shelf (about one per thread).
    pub(in crate::adapters) kept: usize,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters) enum NoResponse {
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    #[error("{0}")]
    Connect(std::io::Error),
    #[error("{}", describe(.0))]
    Exchange(hyper::Error),
}

/// A pool of connections to one address.
pub(in crate::adapters) struct Plain {
    host: String,
    port: u16,
    host_header: HeaderValue,
    limits: Limits,
    idle_pools: [IdlePool; IDLE_POOLS],
    /// Does a task run that closes old connections while there are no requests?
    swept: AtomicBool,
}

/// Number of shelves. The task that drives a connection runs on the thread that made it. Use by another thread would
/// cost two cross-thread wake-ups per request, so each thread has its own shelf.
const IDLE_POOLS: usize = 16;

/// Unused connections. The most recently used one is taken first, so that surplus connections expire.
type IdlePool = Mutex<Idle>;
type Idle = VecDeque<(SendRequest<GatedBody>, Instant)>;

impl Plain {
    /// Returns `None` unless `url` is a plain HTTP address of this machine without credentials. Only the origin of
    /// `url` is used.
    pub(in crate::adapters) fn new(url: &Url, limits: Limits) -> Option<Arc<Self>> {
        if url.scheme() != "http" || !is_loopback(url) || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        Some(Arc::new(Self {
            // A literal IPv6 address has brackets in a URL, but not in a socket address.
            host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default()?,
            host_header: HeaderValue::from_str(url.authority()).ok()?,
            limits,
            idle_pools: Default::default(),
            swept: AtomicBool::new(false),
        }))
    }

    /// Path and query of `url`, as a request line contains them.
    pub(in crate::adapters) fn target(url: &Url) -> Option<hyper::Uri> {
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        target.parse().ok()
    }

    /// Sends a POST. A pooled connection that turns out to be closed is replaced if the body has not been taken yet.
    /// After that, nothing is sent twice.
    ///
    /// # Errors
    /// [`NoResponse`]. `gate` says whether the server may have received the request.
    pub(in crate::adapters) async fn post(
        self: &Arc<Self>,
        target: &hyper::Uri,
        headers: &HeaderMap,
        body: Bytes,
        gate: &SendGate,
    ) -> Result<Response, NoResponse> {
        loop {
            let (mut sender, pooled) = match self.take() {
                Some(sender) => (sender, true),
                None => (self.connect().await?, false),
            };
            if sender.ready().await.is_err() && pooled {
                continue;
            }
            let mut request = hyper::Request::new(GatedBody::new(body.clone(), gate));
            *request.method_mut() = hyper::Method::POST;
            *request.uri_mut() = target.clone();
            request.headers_mut().clone_from(headers);
            request.headers_mut().insert(HOST, self.host_header.clone());
            match sender.send_request(request).await {
                Ok(response) => {
                    let lease = Some((sender, self.clone()));
                    return Ok(Response::Plain(response.map(|body| Leased { body, lease })));
                }
                Err(_) if pooled && !gate.is_sent() => {}
                Err(error) => return Err(NoResponse::Exchange(error)),
            }
        }
    }

    async fn connect(self: &Arc<Self>) -> Result<SendRequest<GatedBody>, NoResponse> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match tokio::time::timeout(self.limits.connect, connecting).await {
            Ok(stream) => stream.map_err(NoResponse::Connect)?,
            Err(_) => return Err(NoResponse::ConnectTimeout(self.limits.connect)),
        };
        stream.set_nodelay(true).map_err(NoResponse::Connect)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(NoResponse::Exchange)?;
        // The caller that waits for a response gets the connection's error from `send_request`.
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with its sender, or when the server closes it"
        )]
        tokio::spawn(connection);
        if !self.swept.swap(true, Ordering::Relaxed) {
            let (pool, pause) = (Arc::downgrade(self), self.limits.idle / 2);
            #[expect(clippy::disallowed_methods, reason = "ends with its pool")]
            tokio::spawn(sweep(pool, pause));
        }
        Ok(sender)
    }

    fn idle_pool(&self) -> &IdlePool {
        &self.idle_pools[thread_number() % IDLE_POOLS]
    }

    fn take(&self) -> Option<SendRequest<GatedBody>> {
        let mut idle = self.idle_pool().lock().unwrap_or_else(PoisonError::into_inner);
        match idle.pop_back() {
            Some((sender, since)) if since.elapsed() < self.limits.idle => Some(sender),
            // The remaining connections are older still.
            _ => {
                idle.clear();
                None
            }
        }
    }

    /// Closes the connections of a shelf that have been idle for too long. They are at the front.
    fn end_old(&self, idle: &mut Idle, now: Instant) {
        let is_old = |since: Instant| now.duration_since(since) >= self.limits.idle;
        while idle.front().is_some_and(|(_, since)| is_old(*since)) {
            idle.pop_front();
        }
    }

    fn give_back(&self, sender: SendRequest<GatedBody>) {
        let mut idle = self.idle_pool().lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        self.end_old(&mut idle, now);
        if !sender.is_closed() && idle.len() < self.limits.kept {
            idle.push_back((sender, now));
        }
    }
}

/// Checks all shelves periodically, because a thread without requests does not check its own.
async fn sweep(pool: Weak<Plain>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(pool) = pool.upgrade() else { return };
        for idle_pool in &pool.idle_pools {
            let mut idle = idle_pool.lock().unwrap_or_else(PoisonError::into_inner);
            pool.end_old(&mut idle, Instant::now());
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

/// A response body that returns its connection to the pool once it has been read to the end. If it is dropped before,
/// the connection is closed, so the server learns that the caller no longer waits.
pub(in crate::adapters) struct Leased {
    body: Incoming,
    lease: Option<(SendRequest<GatedBody>, Arc<Plain>)>,
}

impl Leased {
    /// The next piece, or `None` at the end. Trailers are skipped.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            match std::future::poll_fn(|context| Pin::new(&mut *self).poll_frame(context)).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(error),
                None => return Ok(None),
            }
        }
    }
}

impl Body for Leased {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let ended = match &frame {
            None => true,
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if ended && let Some((sender, pool)) = self.lease.take() {
            pool.give_back(sender);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
