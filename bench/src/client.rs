//! One kept-alive HTTP/1.1 connection to a loopback address.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio_util::task::AbortOnDropHandle;

use crate::loopback::Loopback;

/// An open connection; dropping it closes it.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    pub(crate) async fn open(to: Loopback) -> anyhow::Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(to.connect().await?)).await?;
        #[allow(clippy::disallowed_methods, reason = "aborted when the connection is dropped")]
        let driver = tokio::spawn(async move {
            // An error here shows as the error of the request in flight.
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            host: HeaderValue::try_from(to.address().to_string())?,
            _driver: AbortOnDropHandle::new(driver),
        })
    }

    /// Whether another request can be sent; waits until the last one has been sent.
    pub(crate) async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    pub(crate) async fn post(
        &mut self,
        uri: &Uri,
        extra: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        self.send(Method::POST, uri, extra, body).await
    }

    pub(crate) async fn get(&mut self, uri: &Uri) -> anyhow::Result<(StatusCode, Bytes)> {
        self.send(Method::GET, uri, &[], Bytes::new()).await
    }

    async fn send(
        &mut self,
        method: Method,
        uri: &Uri,
        extra: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.extend(extra.iter().cloned());
        // The last response has been read, and the connection may not have noticed yet.
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}
