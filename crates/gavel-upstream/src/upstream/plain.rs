//! Plain HTTP/1.1 to one server on this machine, over pooled connections.
//!
//! For a server on the same machine, the general client costs more than the call itself: three quarters of its CPU time
//! is spent in layers that only TLS, proxies and redirects need.

use std::cell::Cell;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::header::HeaderMap;
use url::Url;

use super::gated_body::GatedBody;
use super::{Response, cause, is_loopback};
use crate::handover::SendGate;

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
    clients: [Client<HttpConnector, GatedBody>; CLIENTS],
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

    /// Sends a POST. A pooled connection that turns out to be closed is replaced if the body has not been taken yet.
    /// After that, nothing is sent twice.
    ///
    /// # Errors
    /// [`NoResponse`]. `gate` says whether the server may have received the request.
    pub async fn post(
        &self,
        target: &hyper::Uri,
        headers: &HeaderMap,
        body: Bytes,
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
mod tests;
