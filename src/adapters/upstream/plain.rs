//! A pool of plain HTTP/1.1 connections to one server on this machine.
//!
//! For a server beside gavel the general client costs more than the call itself: three quarters of
//! its CPU go into layers that only TLS, proxies and redirects need.

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

use super::watched::{Taken, Watched};
use super::{Response, is_loopback, told};

/// Bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters) struct Limits {
    /// How long a connection may take to be made.
    pub(in crate::adapters) connect: Duration,
    /// How long an unused one is kept.
    pub(in crate::adapters) idle: Duration,
    /// How many unused ones are kept for each thread.
    pub(in crate::adapters) kept: usize,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters) enum NoResponse {
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    #[error("{0}")]
    Connect(std::io::Error),
    #[error("{}", told(.0))]
    Exchange(hyper::Error),
}

/// Connections to one address.
pub(in crate::adapters) struct Plain {
    host: String,
    port: u16,
    host_header: HeaderValue,
    limits: Limits,
    shelves: [Shelf; SHELVES],
    /// Is there a task that ends what grows old while nothing happens?
    swept: AtomicBool,
}

/// A connection's reader and writer is a task of the thread that made it. Taken by another thread,
/// each request would cost two wake-ups across threads, so each has a shelf of its own.
const SHELVES: usize = 16;

/// Unused connections. The one used last is taken first, so that those not needed grow old.
type Shelf = Mutex<Idle>;
type Idle = VecDeque<(SendRequest<Watched>, Instant)>;

impl Plain {
    /// For a plain address of this machine; `None` for any other. Only the origin of `url` counts.
    pub(in crate::adapters) fn new(url: &Url, limits: Limits) -> Option<Arc<Self>> {
        if url.scheme() != "http" || !is_loopback(url) || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        Some(Arc::new(Self {
            // A literal IPv6 address stands in brackets in a URL, and without them in a socket address.
            host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default()?,
            host_header: HeaderValue::from_str(url.authority()).ok()?,
            limits,
            shelves: Default::default(),
            swept: AtomicBool::new(false),
        }))
    }

    /// Path and query of `url`, as a request line has them.
    pub(in crate::adapters) fn target(url: &Url) -> Option<hyper::Uri> {
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        target.parse().ok()
    }

    /// Sends a POST. A pooled connection that turns out to be closed is replaced as long as the body
    /// has not been touched; after that nothing is sent twice.
    ///
    /// # Errors
    /// [`NoResponse`]; `taken` tells whether the server can have seen the request.
    pub(in crate::adapters) async fn post(
        self: &Arc<Self>,
        target: &hyper::Uri,
        headers: &HeaderMap,
        body: Bytes,
        taken: &Taken,
    ) -> Result<Response, NoResponse> {
        loop {
            let (mut sender, pooled) = match self.take() {
                Some(sender) => (sender, true),
                None => (self.connect().await?, false),
            };
            if sender.ready().await.is_err() && pooled {
                continue;
            }
            let mut request = hyper::Request::new(Watched::new(body.clone(), taken));
            *request.method_mut() = hyper::Method::POST;
            *request.uri_mut() = target.clone();
            request.headers_mut().clone_from(headers);
            request.headers_mut().insert(HOST, self.host_header.clone());
            match sender.send_request(request).await {
                Ok(response) => {
                    let lease = Some((sender, self.clone()));
                    return Ok(Response::Plain(response.map(|body| Leased { body, lease })));
                }
                Err(_) if pooled && !taken.get() => {}
                Err(error) => return Err(NoResponse::Exchange(error)),
            }
        }
    }

    async fn connect(self: &Arc<Self>) -> Result<SendRequest<Watched>, NoResponse> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match tokio::time::timeout(self.limits.connect, connecting).await {
            Ok(stream) => stream.map_err(NoResponse::Connect)?,
            Err(_) => return Err(NoResponse::ConnectTimeout(self.limits.connect)),
        };
        stream.set_nodelay(true).map_err(NoResponse::Connect)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(NoResponse::Exchange)?;
        // Whoever waits for an answer hears why it ended.
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

    fn shelf(&self) -> &Shelf {
        &self.shelves[thread_number() % SHELVES]
    }

    fn take(&self) -> Option<SendRequest<Watched>> {
        let mut idle = self.shelf().lock().unwrap_or_else(PoisonError::into_inner);
        match idle.pop_back() {
            Some((sender, since)) if since.elapsed() < self.limits.idle => Some(sender),
            // The others are older still.
            _ => {
                idle.clear();
                None
            }
        }
    }

    /// Ends those on a shelf that have not been used for long; they stand at its front.
    fn end_old(&self, idle: &mut Idle, now: Instant) {
        let is_old = |since: Instant| now.duration_since(since) >= self.limits.idle;
        while idle.front().is_some_and(|(_, since)| is_old(*since)) {
            idle.pop_front();
        }
    }

    fn give_back(&self, sender: SendRequest<Watched>) {
        let mut idle = self.shelf().lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        self.end_old(&mut idle, now);
        if !sender.is_closed() && idle.len() < self.limits.kept {
            idle.push_back((sender, now));
        }
    }
}

/// Looks at all shelves now and then, since a thread that has no more requests does not look at its own.
async fn sweep(pool: Weak<Plain>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let Some(pool) = pool.upgrade() else { return };
        for shelf in &pool.shelves {
            let mut idle = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            pool.end_old(&mut idle, Instant::now());
        }
    }
}

/// Threads in the order in which they first asked.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
    MINE.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        MINE.set(Some(number));
        number
    })
}

/// A response body that gives its connection back when it has been read to the end; dropped before,
/// it closes the connection, which is how the server learns that nobody waits.
pub(in crate::adapters) struct Leased {
    body: Incoming,
    lease: Option<(SendRequest<Watched>, Arc<Plain>)>,
}

impl Leased {
    /// The next piece; `None` at the end. Trailers are passed over.
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
            .post(&target, &headers, Bytes::from_static(b"x"), &Taken::default())
            .await
            .unwrap();
        while response.chunk().await.unwrap().is_some() {}
    }

    /// Promise 5: connections of a burst go when their time is over, whether there are requests or not.
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

    /// One request after a burst, with nothing else done meanwhile, ends all of it.
    #[tokio::test]
    async fn a_connection_that_comes_back_ends_all_that_are_old() {
        let (url, open) = server().await;
        let limits = Limits {
            idle: Duration::from_millis(200),
            kept: 8,
            ..LIMITS
        };
        let pool = Plain::new(&url, limits).unwrap();
        // Nobody sweeps.
        pool.swept.store(true, Ordering::Relaxed);
        futures_util::future::join_all((0..8).map(|_| post(&pool))).await;
        let (sender, _) = pool.shelf().lock().unwrap().pop_back().unwrap();
        tokio::time::sleep(limits.idle).await;
        pool.give_back(sender);
        while open.load(Ordering::SeqCst) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(pool.shelf().lock().unwrap().len(), 1);
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
