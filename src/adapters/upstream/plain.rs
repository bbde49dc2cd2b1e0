//! A pool of plain HTTP/1.1 connections to one server on this machine.
//!
//! For a server beside gavel (a sidecar, a bundled one) the general client costs more than the call
//! itself: three quarters of its CPU go into layers that only TLS, proxies and redirects need. Any
//! other address goes through reqwest.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use reqwest::header::{HOST, HeaderMap, HeaderValue};
use tokio::net::TcpStream;
use url::Url;

use super::body::Watched;
use super::{CONCURRENT, CONNECT, IDLE, is_loopback};

/// Connections to one address.
pub(super) struct Plain {
    host: String,
    port: u16,
    host_header: HeaderValue,
    target: hyper::Uri,
    /// The one used last is taken first, so that those not needed grow old.
    idle: Mutex<Vec<(SendRequest<Watched>, Instant)>>,
}

impl Plain {
    /// For a plain address of this machine; `None` for any other.
    pub(super) fn new(url: &Url) -> Option<Arc<Self>> {
        if url.scheme() != "http" || !is_loopback(url) || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let port = url.port_or_known_default()?;
        Some(Arc::new(Self {
            // A literal IPv6 address stands in brackets in a URL, and without them in a socket address.
            host: url.host_str()?.trim_matches(['[', ']']).to_owned(),
            port,
            host_header: HeaderValue::from_str(url.authority()).ok()?,
            target: target.parse().ok()?,
            idle: Mutex::default(),
        }))
    }

    /// Sends a POST. A pooled connection that turns out to be closed is replaced as long as the body
    /// has not been touched; after that nothing is sent twice.
    ///
    /// # Errors
    /// Why there is no response.
    pub(super) async fn post(
        self: &Arc<Self>,
        headers: &HeaderMap,
        body: Bytes,
        taken: &Arc<AtomicBool>,
    ) -> Result<reqwest::Response, String> {
        loop {
            let (mut sender, pooled) = match self.take() {
                Some(sender) => (sender, true),
                None => (self.connect().await?, false),
            };
            if sender.ready().await.is_err() && pooled {
                continue;
            }
            let mut request = hyper::Request::new(Watched::new(body.clone(), taken.clone()));
            *request.method_mut() = hyper::Method::POST;
            *request.uri_mut() = self.target.clone();
            request.headers_mut().clone_from(headers);
            request.headers_mut().insert(HOST, self.host_header.clone());
            match sender.send_request(request).await {
                Ok(response) => {
                    let lease = Some((sender, self.clone()));
                    return Ok(response.map(|body| reqwest::Body::wrap(Leased { body, lease })).into());
                }
                Err(_) if pooled && !taken.load(Ordering::Acquire) => {}
                Err(error) => return Err(cause(&error)),
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Watched>, String> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match tokio::time::timeout(CONNECT, connecting).await {
            Ok(stream) => stream.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("no connection within {} ms", CONNECT.as_millis())),
        };
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| cause(&error))?;
        // Whoever waits for an answer hears why it ended.
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with its sender, or when the server closes it"
        )]
        tokio::spawn(connection);
        Ok(sender)
    }

    fn take(&self) -> Option<SendRequest<Watched>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        match idle.pop() {
            Some((sender, since)) if since.elapsed() < IDLE => Some(sender),
            // The others are older still.
            _ => {
                idle.clear();
                None
            }
        }
    }

    fn give_back(&self, sender: SendRequest<Watched>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !sender.is_closed() && idle.len() < CONCURRENT {
            idle.push((sender, Instant::now()));
        }
    }
}

fn cause(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A response body that gives its connection back when it has been read to the end; dropped before,
/// it closes the connection, which is how the server learns that nobody waits.
struct Leased {
    body: Incoming,
    lease: Option<(SendRequest<Watched>, Arc<Plain>)>,
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

    #[test]
    fn only_plain_addresses_of_this_machine_are_taken() {
        let takes = |url: &str| Plain::new(&Url::parse(url).unwrap()).is_some();
        assert!(takes("http://127.0.0.1:1/mcp?a=b") && takes("http://localhost/mcp") && takes("http://[::1]:8/"));
        assert!(!takes("https://localhost/mcp") && !takes("http://example.org/mcp") && !takes("http://u:p@localhost/"));
        let v6 = Plain::new(&Url::parse("http://[::1]:8/x?y").unwrap()).unwrap();
        assert_eq!(
            (v6.host.as_str(), v6.port, v6.target.to_string()),
            ("::1", 8, "/x?y".to_owned())
        );
        assert_eq!(v6.host_header, "[::1]:8");
    }
}
