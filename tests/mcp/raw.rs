//! A peer that speaks HTTP by hand over raw TCP, for what a proper server never does: it hangs, cuts
//! answers, closes connections, and counts what reaches it.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What to do with one request.
pub(crate) enum Answer {
    /// A `result` in JSON.
    Result(Value),
    /// A whole response: status line and headers without the length, then the body.
    Http(&'static str, String),
    /// Bytes as they are, and then the connection is closed.
    Cut(String),
    /// The connection is closed without a word.
    Close,
    /// Nothing, until the client goes away; that is then told as `gone`.
    Hang,
}

/// A JSON-RPC message as it came in, `{}` for a request without a body.
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
    /// Every method that came in, and `gone` for each client that left a hanging request.
    pub(crate) seen: mpsc::UnboundedReceiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl RawServer {
    /// `answer` decides on everything but the handshake of the session era and `tools/list`, for
    /// which `None` means the usual.
    pub(crate) async fn start(answer: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (sender, seen) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, sender) = (answer.clone(), sender.clone());
                connections.spawn(async move {
                    connection(stream, &*answer, &sender).await;
                });
            }
        });
        Self { url, seen, task }
    }

    /// The next thing that happens and is called `what`.
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

    /// How often `what` has happened that was not yet asked for.
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

async fn connection(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Request) -> Option<Answer> + Send + Sync),
    seen: &mpsc::UnboundedSender<String>,
) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let _ = seen.send(request.method().to_owned());
        let bytes = match answer(&request).unwrap_or_else(|| usual(&request)) {
            Answer::Result(result) => {
                let body = json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result}).to_string();
                response("HTTP/1.1 200 OK\r\ncontent-type: application/json", &body)
            }
            Answer::Http(head, body) => response(head, &body),
            Answer::Cut(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Answer::Close => return,
            Answer::Hang => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                let _ = seen.send("gone".to_owned());
                return;
            }
        };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn response(head: &str, body: &str) -> Vec<u8> {
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The tools a raw peer has where the test says nothing else.
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

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
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
