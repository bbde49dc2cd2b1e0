//! A scripted server on a raw socket: it can hang, drip, cut, reset and flood, which a mock server cannot.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The steps for one request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends the same bytes many times.
    Flood(Vec<u8>, usize),
    /// Sends the same bytes repeatedly, with a pause, until the client disconnects.
    Drip(Vec<u8>, Duration),
    /// Sends nothing for this time.
    Pause(Duration),
    /// Sends nothing until the client disconnects.
    Hang,
    /// Breaks the connection (RST).
    Reset,
    /// Ends the connection (FIN).
    Close,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Default)]
struct State {
    script: Mutex<VecDeque<Vec<Step>>>,
    seen: Mutex<Vec<Seen>>,
    sent: AtomicUsize,
    left: tokio::sync::Notify,
}

/// The scripted server. It ends with the test's runtime.
pub(crate) struct Far {
    pub(crate) url: String,
    state: Arc<State>,
}

impl Far {
    /// Listens, and answers the n-th request with the n-th entry. A request beyond the script is answered with 599,
    /// which is never retried.
    pub(crate) async fn start(script: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            script: Mutex::new(script.into_iter().collect()),
            ..State::default()
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A client that disconnects ends its connection here, at any step.
                    let _ = serve(socket, &state).await;
                    state.left.notify_one();
                });
            }
        });
        Self { url, state }
    }

    /// Every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Bytes that the socket accepted.
    pub(crate) fn sent(&self) -> usize {
        self.state.sent.load(Ordering::SeqCst)
    }

    /// Waits until a connection has ended.
    pub(crate) async fn client_left(&self) {
        self.state.left.notified().await;
    }
}

async fn serve(mut socket: TcpStream, state: &State) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let Some(seen) = read_request(&mut socket, &mut buffer).await? else {
            return Ok(());
        };
        state.seen.lock().unwrap().push(seen);
        let steps = state.script.lock().unwrap().pop_front();
        for step in steps.unwrap_or_else(|| answer(599, "application/json", b"{}")) {
            match step {
                Step::Send(bytes) => write(&mut socket, &bytes, state).await?,
                Step::Flood(bytes, times) => {
                    for _ in 0..times {
                        write(&mut socket, &bytes, state).await?;
                    }
                }
                Step::Drip(bytes, pause) => loop {
                    write(&mut socket, &bytes, state).await?;
                    tokio::time::sleep(pause).await;
                },
                Step::Pause(pause) => tokio::time::sleep(pause).await,
                Step::Hang => {
                    let mut byte = [0];
                    while socket.read(&mut byte).await? > 0 {}
                    return Ok(());
                }
                Step::Reset => return socket.set_zero_linger(),
                Step::Close => return socket.shutdown().await,
            }
        }
    }
}

async fn write(socket: &mut TcpStream, bytes: &[u8], state: &State) -> std::io::Result<()> {
    socket.write_all(bytes).await?;
    state.sent.fetch_add(bytes.len(), Ordering::SeqCst);
    Ok(())
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Seen>> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < end + length {
        if socket.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[end..end + length].to_vec();
    buffer.drain(..end + length);
    Ok(Some(Seen { line, headers, body }))
}

/// A complete response.
pub(crate) fn answer(status: u16, kind: &str, body: &[u8]) -> Vec<Step> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Send(bytes)]
}

pub(crate) fn json(status: u16, body: &str) -> Vec<Step> {
    answer(status, "application/json; charset=UTF-8", body.as_bytes())
}

/// A complete stream of events, framed as Google does.
pub(crate) fn events<S: AsRef<str>>(chunks: &[S]) -> Vec<Step> {
    let mut steps = open_stream();
    steps.extend(chunks.iter().map(|chunk| event(chunk.as_ref())));
    steps.push(end_of_stream());
    steps
}

/// The head of a stream.
pub(crate) fn open_stream() -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![Step::Send(head.into())]
}

pub(crate) fn event(json: &str) -> Step {
    piece(&format!("data: {json}\r\n\r\n"))
}

/// A piece of a chunked body.
pub(crate) fn piece(data: &str) -> Step {
    Step::Send(format!("{:x}\r\n{data}\r\n", data.len()).into_bytes())
}

pub(crate) fn end_of_stream() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}
