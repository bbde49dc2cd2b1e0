//! A peer that implements HTTP/1.1 by hand, for behavior that no correct server has: it hangs, cuts answers, closes
//! connections, and counts its requests. Over HTTP/2, where a library does the framing, it does the same to its
//! streams.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};

use self::lane::Stream;

#[path = "lane.rs"]
pub(crate) mod lane;

/// The answer to one request.
pub(crate) enum Answer {
    /// A `result` in JSON.
    Result(Value),
    /// A complete response: status line and headers without the length, then the body.
    Http(&'static str, String),
    /// As `Http`, with a body of any bytes.
    Bytes(&'static str, Vec<u8>),
    /// Raw bytes, and then the connection is closed; over HTTP/2 the stream is reset.
    Cut(String),
    /// The connection is closed without an answer, with all streams on it.
    Close,
    /// Raw bytes, and then nothing more, with the connection open. Over HTTP/2 as [`Self::Cut`].
    Stall(String),
    /// Nothing until the client disconnects, which is then reported as `gone`.
    Hang,
}

/// A received JSON-RPC message, `{}` for a request without a body.
pub(crate) struct Request {
    pub(crate) message: Value,
    pub(crate) head: String,
}

impl Request {
    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }
}

pub(crate) struct RawServer {
    pub(crate) url: String,
    /// If set, the peer accepts no new client, though the operating system still accepts connections for it.
    pub(crate) deaf: Arc<AtomicBool>,
    /// Every received method, and `gone` for each client that disconnected from a hanging request.
    pub(crate) seen: mpsc::UnboundedReceiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl RawServer {
    /// `answer` handles everything but the handshake of the session era and `tools/list`, for which `None` means the
    /// default.
    pub(crate) async fn start(answer: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = lane::url(listener.local_addr().unwrap().port());
        let (sender, seen) = mpsc::unbounded_channel();
        let answer: Arc<Answers> = Arc::new(answer);
        let deaf: Arc<AtomicBool> = Arc::default();
        let is_deaf = deaf.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if is_deaf.load(Ordering::SeqCst) {
                    connections.spawn(async move {
                        let _open = stream;
                        std::future::pending().await
                    });
                    continue;
                }
                let (answer, sender) = (answer.clone(), sender.clone());
                connections.spawn(async move {
                    match lane::accept(stream).await {
                        Some(stream) if lane::is_http_2() => streams(stream, answer, sender).await,
                        Some(stream) => connection(stream, &*answer, &sender).await,
                        None => {}
                    }
                });
            }
        });
        Self { url, deaf, seen, task }
    }

    /// Waits for the next event called `what`.
    pub(crate) async fn saw(&mut self, what: &str) {
        let seen = async {
            while let Some(seen) = self.seen.recv().await {
                if seen == what {
                    return;
                }
            }
            panic!("the peer is gone");
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), seen)
            .await
            .unwrap_or_else(|_| panic!("never saw {what}"));
    }

    /// The number of `what` events that no check has consumed.
    pub(crate) fn count(&mut self, what: &str) -> usize {
        let mut count = 0;
        while let Ok(seen) = self.seen.try_recv() {
            count += usize::from(seen == what);
        }
        count
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Answers = dyn Fn(&Request) -> Option<Answer> + Send + Sync;
type Seen = mpsc::UnboundedSender<String>;

async fn connection(mut stream: Stream, answer: &Answers, seen: &Seen) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let _ = seen.send(request.method().to_owned());
        let bytes = match answer(&request).unwrap_or_else(|| usual(&request)) {
            Answer::Result(result) => response(JSON, message(&request, &result).as_bytes()),
            Answer::Http(head, body) => response(head, body.as_bytes()),
            Answer::Bytes(head, body) => response(head, &body),
            Answer::Cut(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Answer::Close => return,
            Answer::Stall(bytes) => {
                if stream.write_all(bytes.as_bytes()).await.is_ok() {
                    std::future::pending::<()>().await;
                }
                return;
            }
            Answer::Hang => {
                let _gone = Gone(seen);
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                return;
            }
        };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json";

fn message(request: &Request, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result}).to_string()
}

/// Reports that the client has disconnected from a hanging request.
struct Gone<'a>(&'a Seen);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let _ = self.0.send("gone".to_owned());
    }
}

/// The maximum number of concurrent streams on an HTTP/2 connection.
pub(crate) const STREAMS: u32 = 8;

/// An HTTP/2 connection.
async fn streams(stream: Stream, answer: Arc<Answers>, seen: Seen) {
    let close = Arc::new(Notify::new());
    let each = hyper::service::service_fn(|request| {
        let (answer, seen, close) = (answer.clone(), seen.clone(), close.clone());
        async move { one(request, &*answer, &seen, &close).await }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS)
        .serve_connection(TokioIo::new(stream), each);
    tokio::select! {
        // A client that disconnects ends it.
        _ = connection => {}
        () = close.notified() => {}
    }
}

/// One stream of it. An error resets the stream.
async fn one(
    request: hyper::Request<Incoming>,
    answer: &Answers,
    seen: &Seen,
    close: &Notify,
) -> io::Result<hyper::Response<BoxBody<Bytes, io::Error>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let mut head = format!("{} {}\r\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        head.push_str(&format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let request = Request {
        message: serde_json::from_slice(&body).unwrap_or_else(|_| json!({})),
        head: head.to_lowercase(),
    };
    let _ = seen.send(request.method().to_owned());
    let whole = |head: &str, body: Vec<u8>| {
        Ok(builder(head)
            .body(Full::from(body).map_err(|no| match no {}).boxed())
            .unwrap())
    };
    match answer(&request).unwrap_or_else(|| usual(&request)) {
        Answer::Result(result) => whole(JSON, message(&request, &result).into_bytes()),
        Answer::Http(head, body) => whole(head, body.into_bytes()),
        Answer::Bytes(head, body) => whole(head, body),
        Answer::Cut(text) | Answer::Stall(text) => {
            let cut = || io::Error::other("cut");
            let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length == body.len().to_string()) {
                return whole(head, body.as_bytes().to_vec());
            }
            let pieces = [Ok(Frame::data(Bytes::from(body.to_owned()))), Err(cut())];
            let body = BodyExt::boxed(StreamBody::new(futures_util::stream::iter(pieces)));
            Ok(builder(head).body(body).unwrap())
        }
        Answer::Close => {
            close.notify_one();
            std::future::pending().await
        }
        Answer::Hang => {
            let _gone = Gone(seen);
            std::future::pending().await
        }
    }
}

/// An HTTP/1.1 head, without the parts that HTTP/2 expresses otherwise.
fn builder(head: &str) -> hyper::http::response::Builder {
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut builder = hyper::Response::builder().status(status);
    for (name, value) in lines.map(|line| line.split_once(": ").unwrap()) {
        if !matches!(name, "connection" | "content-length") {
            builder = builder.header(name, value);
        }
    }
    builder
}

fn response(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The default tools of a raw peer.
pub(crate) fn tools() -> Value {
    json!({"tools": [{"name": "act", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}]})
}

fn usual(request: &Request) -> Answer {
    match request.method() {
        "initialize" => Answer::Result(json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        })),
        "tools/list" => Answer::Result(tools()),
        method if method.starts_with("notifications/") => Answer::Http("HTTP/1.1 202 Accepted", String::new()),
        "" => Answer::Http("HTTP/1.1 405 Method Not Allowed", String::new()),
        _ => {
            let id = &request.message["id"];
            let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "method not found"}});
            Answer::Http("HTTP/1.1 200 OK\r\ncontent-type: application/json", body.to_string())
        }
    }
}

async fn read(stream: &mut Stream, buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.trim().parse().unwrap());
    while buffer.len() < end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let message = serde_json::from_slice(&buffer[end..end + length]).unwrap_or_else(|_| json!({}));
    buffer.drain(..end + length);
    Some(Request { message, head })
}
