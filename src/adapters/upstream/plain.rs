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

use super::gated_body::{GatedBody, SendGate};
use super::{Response, describe, is_loopback};

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
                Err(_) if pooled && !gate.get() => {}
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LIMITS: Limits = Limits {
        connect: Duration::from_secs(1),
        idle: Duration::from_secs(1),
        kept: 1,
    };

    /// A server that counts the connections that are open.
    async fn server() -> (Url, Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let open = Arc::<AtomicUsize>::default();
        let counted = open.clone();
        let accepting = async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let open = counted.clone();
                open.fetch_add(1, Ordering::SeqCst);
                connections.spawn(async move {
                    let answer = hyper::service::service_fn(async |_| {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        Ok::<_, std::convert::Infallible>(hyper::Response::new(String::new()))
                    });
                    let http1 = hyper::server::conn::http1::Builder::new();
                    let _ = http1.serve_connection(TokioIo::new(stream), answer).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        };
        #[expect(clippy::disallowed_methods, reason = "ends with the test")]
        tokio::spawn(accepting);
        (url, open)
    }

    async fn post(pool: &Arc<Plain>) {
        let (target, headers) = (hyper::Uri::from_static("/"), HeaderMap::new());
        let mut response = pool
            .post(&target, &headers, Bytes::from_static(b"x"), &SendGate::default())
            .await
            .unwrap();
        while response.chunk().await.unwrap().is_some() {}
    }

    /// Promise 5: connections of a burst are closed when they expire, with or without further requests.
    #[tokio::test]
    async fn what_a_burst_has_left_ends_with_its_time() {
        const BURST: usize = 20;
        let idle = Duration::from_millis(400);
        for quiet in [true, false] {
            let (url, open) = server().await;
            let limits = Limits {
                idle,
                kept: BURST,
                ..LIMITS
            };
            let pool = Plain::new(&url, limits).unwrap();
            futures_util::future::join_all((0..BURST).map(|_| post(&pool))).await;
            assert_eq!(open.load(Ordering::SeqCst), BURST);
            let until = Instant::now() + idle * 4;
            while Instant::now() < until {
                if quiet {
                    tokio::time::sleep(idle / 8).await;
                } else {
                    post(&pool).await;
                }
            }
            assert_eq!(open.load(Ordering::SeqCst), usize::from(!quiet), "{quiet}");
        }
    }

    /// One returned connection closes all expired ones, even without the sweeper.
    #[tokio::test]
    async fn a_connection_that_comes_back_ends_all_that_are_old() {
        let (url, open) = server().await;
        let limits = Limits {
            idle: Duration::from_millis(200),
            kept: 8,
            ..LIMITS
        };
        let pool = Plain::new(&url, limits).unwrap();
        // Pretend that the sweeper already runs, so that none is started.
        pool.swept.store(true, Ordering::Relaxed);
        futures_util::future::join_all((0..8).map(|_| post(&pool))).await;
        let (sender, _) = pool.idle_pool().lock().unwrap().pop_back().unwrap();
        tokio::time::sleep(limits.idle).await;
        pool.give_back(sender);
        while open.load(Ordering::SeqCst) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(pool.idle_pool().lock().unwrap().len(), 1);
    }

    #[test]
    fn only_plain_addresses_of_this_machine_are_taken() {
        let takes = |url: &str| Plain::new(&Url::parse(url).unwrap(), LIMITS).is_some();
        assert!(takes("http://127.0.0.1:1/mcp?a=b") && takes("http://localhost/mcp") && takes("http://[::1]:8/"));
        assert!(!takes("https://localhost/mcp") && !takes("http://example.org/mcp") && !takes("http://u:p@localhost/"));
        let url = Url::parse("http://[::1]:8/x?y").unwrap();
        let v6 = Plain::new(&url, LIMITS).unwrap();
        assert_eq!((v6.host.as_str(), v6.port), ("::1", 8));
        assert_eq!(v6.host_header, "[::1]:8");
        assert_eq!(Plain::target(&url).unwrap(), "/x?y");
    }
}
