//! A scripted stand-in for Gemini that speaks the real wire format: unary and SSE.
//!
//! A script is a list of answers. The stand-in stores every request unchanged, and reads it only if that is needed: long
//! ones take most of the time of a test.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::Stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

type Dynamic = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// One answer of the script.
#[derive(Clone)]
pub enum Reply {
    /// Text.
    Text(&'static str),
    /// Text in pieces with this delay after each. A request that is not streamed gets them at once.
    Words(Duration, &'static [&'static str]),
    /// Text that a test sends piece by piece (`Mouth`); only a streamed request receives it.
    Spoken(Spoken),
    /// Function calls, in one content.
    Calls(Vec<(&'static str, Value)>),
    /// Computed from the request's body.
    From(Dynamic),
    /// A raw HTTP response.
    Raw(u16, String),
    /// An answer after a delay.
    After(Duration, Box<Reply>),
    /// An answer that waits for a release.
    Held(Arc<Notify>, Box<Reply>),
    /// Never answers.
    Hang,
    /// Closes the connection without an answer.
    Close,
}

impl Reply {
    /// The same reply; `look` gets each request's body first.
    pub fn seen_by(self, look: impl Fn(&Value) + Send + Sync + 'static) -> Self {
        match self {
            Self::From(made) => Self::from(move |request| {
                look(request);
                made(request)
            }),
            _ => panic!("only a reply that is computed from the request"),
        }
    }

    pub fn call(name: &'static str, args: Value) -> Self {
        Self::Calls(vec![(name, args)])
    }

    pub fn from(make: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::From(Arc::new(make))
    }

    pub fn error(status: u16, name: &str, details: Value) -> Self {
        let error = json!({"error": {"code": status, "message": "canary-provider-message", "status": name, "details": details}});
        Self::Raw(status, error.to_string())
    }

    pub fn finish(reason: &str) -> Self {
        Self::Raw(
            200,
            json!({"candidates": [{"finishReason": reason, "index": 0}], "usageMetadata": usage()}).to_string(),
        )
    }
}

fn usage() -> Value {
    json!({"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 5, "totalTokenCount": 115})
}

type Spoken = Arc<Mutex<Option<mpsc::UnboundedReceiver<Piece>>>>;

/// A piece of a streamed answer.
#[derive(Debug)]
pub struct Piece {
    part: Value,
    is_last: bool,
}

/// Sends the text of one answer when the test asks for it. If it is dropped before the last piece, the connection
/// breaks.
pub struct Mouth(mpsc::UnboundedSender<Piece>);

impl Mouth {
    /// With the reply that it sends, to one request.
    pub fn new() -> (Self, Reply) {
        let (sender, pieces) = mpsc::unbounded_channel();
        (Self(sender), Reply::Spoken(Arc::new(Mutex::new(Some(pieces)))))
    }

    pub fn says(&self, text: &str) {
        self.piece(json!({"text": text}), false);
    }

    /// Sends a summary of its thinking.
    pub fn thinks(&self, text: &str) {
        self.piece(json!({"text": text, "thought": true}), false);
    }

    /// Sends the last piece.
    pub fn ends(self, text: &str) {
        self.piece(json!({"text": text}), true);
    }

    fn piece(&self, part: Value, is_last: bool) {
        self.0.send(Piece { part, is_last }).expect("the model was asked once");
    }
}

/// The stand-in. It lives until the test's runtime ends.
pub struct Gemini {
    pub url: String,
    requests: Seen,
}

type Seen = Arc<Mutex<Vec<Arc<Asked>>>>;

/// The body of a request.
struct Asked {
    bytes: Bytes,
    read: OnceLock<Value>,
}

impl Asked {
    fn body(&self) -> &Value {
        self.read
            .get_or_init(|| serde_json::from_slice(&self.bytes).expect("a request is JSON"))
    }
}

impl Gemini {
    /// Answers in order; after the end of the script, the last answer repeats.
    pub async fn scripted(script: Vec<Reply>) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(script);
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&script), Arc::clone(&seen)));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            url: format!("http://{address}"),
            requests,
        }
    }

    /// Every request body so far.
    pub fn requests(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|asked| asked.body().clone()).collect()
    }

    /// The bytes of every request body so far.
    pub fn bytes(&self) -> Vec<Bytes> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|asked| asked.bytes.clone()).collect()
    }

    /// The number of bytes of every request body so far.
    pub fn sizes(&self) -> Vec<usize> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|asked| asked.bytes.len()).collect()
    }
}

async fn answer(
    request: Request<Incoming>,
    script: Arc<Vec<Reply>>,
    seen: Seen,
) -> Result<Response<BoxBody<Bytes, io::Error>>, io::Error> {
    if request.method() == Method::GET {
        return Ok(whole(
            200,
            "application/json; charset=UTF-8",
            model(request.uri().path()),
        ));
    }
    let stream = request.uri().path().ends_with(":streamGenerateContent");
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let asked = Arc::new(Asked {
        bytes: body,
        read: OnceLock::new(),
    });
    let n = {
        let mut seen = seen.lock().unwrap();
        seen.push(Arc::clone(&asked));
        seen.len()
    };
    let mut reply = script[(n - 1).min(script.len() - 1)].clone();
    loop {
        reply = match reply {
            Reply::From(make) => make(asked.body()),
            Reply::After(time, later) => {
                tokio::time::sleep(time).await;
                *later
            }
            Reply::Held(go, later) => {
                go.notified().await;
                *later
            }
            _ => break,
        };
    }
    if let (Reply::Words(pause, words), true) = (&reply, stream) {
        return Ok(in_pieces(n, *pause, words));
    }
    if let (Reply::Spoken(spoken), true) = (&reply, stream) {
        let pieces = spoken.lock().unwrap().take().expect("only one request receives it");
        return Ok(as_it_is_said(n, pieces));
    }
    let (status, text) = match reply {
        Reply::Words(_, words) => (200, turn(n, &[json!({"text": words.concat()})])),
        Reply::Text(text) => (200, turn(n, &[json!({"text": text})])),
        Reply::Calls(calls) => (200, turn(n, &call_parts(n, calls))),
        Reply::Raw(status, text) => (status, text),
        Reply::Hang => {
            std::future::pending::<Infallible>().await;
            unreachable!()
        }
        Reply::Close => return Err(io::Error::other("closed by the script")),
        Reply::Spoken(_) => panic!("only a streamed request receives it"),
        Reply::From(_) | Reply::After(..) | Reply::Held(..) => unreachable!(),
    };
    let (kind, text) = if stream && status == 200 {
        ("text/event-stream", format!("data: {text}\r\n\r\n"))
    } else {
        ("application/json; charset=UTF-8", text)
    };
    Ok(whole(status, kind, text))
}

fn whole(status: u16, kind: &str, text: String) -> Response<BoxBody<Bytes, io::Error>> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed())
        .unwrap()
}

/// The description of the model that a path names. Reading it is no request of the script.
fn model(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    json!({
        "name": format!("models/{name}"), "displayName": name, "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536,
    })
    .to_string()
}

/// Server-sent events, one per piece, as Gemini streams: the last one has the finish reason.
fn in_pieces(n: usize, pause: Duration, words: &'static [&'static str]) -> Response<BoxBody<Bytes, io::Error>> {
    let chunk = move |(at, word): (usize, &&str)| chunk(n, json!({"text": word}), at + 1 == words.len());
    let chunks: Vec<_> = words.iter().enumerate().map(chunk).collect();
    let body = futures_util::stream::unfold(chunks.into_iter(), move |mut chunks| async move {
        let chunk = chunks.next()?;
        tokio::time::sleep(pause).await;
        Some((Ok(Frame::data(chunk)), chunks))
    });
    events(body)
}

/// As `in_pieces`, with pieces that are sent when the test sends them.
fn as_it_is_said(n: usize, pieces: mpsc::UnboundedReceiver<Piece>) -> Response<BoxBody<Bytes, io::Error>> {
    let body = futures_util::stream::unfold(Some(pieces), move |pieces| async move {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(piece) => {
                let frame = Frame::data(chunk(n, piece.part, piece.is_last));
                Some((Ok(frame), (!piece.is_last).then_some(pieces)))
            }
            None => Some((Err(io::Error::other("broken by the test")), None)),
        }
    });
    events(body)
}

fn events(
    body: impl Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync + 'static,
) -> Response<BoxBody<Bytes, io::Error>> {
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(body).boxed())
        .unwrap()
}

fn chunk(n: usize, part: Value, is_last: bool) -> Bytes {
    let mut chunk: Value = serde_json::from_str(&turn(n, &[part])).unwrap();
    if !is_last {
        chunk["candidates"][0].as_object_mut().unwrap().remove("finishReason");
    }
    Bytes::from(format!("data: {chunk}\r\n\r\n"))
}

/// The body of the `n`th answer, which consists of these parts.
pub fn turn(n: usize, parts: &[Value]) -> String {
    json!({
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage(),
        "modelVersion": "gemini-3.5-flash",
        "responseId": format!("r{n}"),
    })
    .to_string()
}

/// The first call of a turn carries the signature, as with Gemini 3.
fn call_parts(n: usize, calls: Vec<(&str, Value)>) -> Vec<Value> {
    calls
        .into_iter()
        .enumerate()
        .map(|(k, (name, args))| {
            let mut part = json!({"functionCall": {"id": format!("c{n}x{k}"), "name": name, "args": args}});
            if k == 0 {
                part["thoughtSignature"] = json!("c2lnbmF0dXJlLW9mLXRoZS10dXJu");
            }
            part
        })
        .collect()
}

/// The last tool's result from a request's body: the data under `untrusted_data`.
pub fn last_tool_data(request: &Value) -> Value {
    let last = request["contents"].as_array().unwrap().last().unwrap();
    let response = &last["parts"][0]["functionResponse"]["response"];
    let data = &response["output"]["untrusted_data"];
    assert!(!data.is_null(), "the request answers no call: {last}");
    match data {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| data.clone()),
        other => other.clone(),
    }
}

/// The id of the task whose description contains `text`, from a `list_tasks` result.
pub fn id_of(request: &Value, text: &str) -> Value {
    let data = last_tool_data(request);
    let tasks = data["tasks"].as_array().unwrap_or_else(|| panic!("no tasks in {data}"));
    let found = tasks
        .iter()
        .find(|task| task["description"].as_str().unwrap().to_lowercase().contains(text));
    found.unwrap_or_else(|| panic!("no task {text:?} in {data}"))["id"].clone()
}
