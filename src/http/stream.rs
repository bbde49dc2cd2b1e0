//! `POST /v1/chat/stream`: the events of the journal as they happen, last the decision. NDJSON, or
//! SSE when `Accept` asks for it. A client that leaves does not cancel.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::error::Problem;
use super::{Edge, REQUEST_ID, chat, request};
use crate::domain::event::Numbered;
use crate::surfaces::chat::EventSink;

/// Sent when nothing else was for so long, so that nobody between closes the connection.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How events become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Ndjson,
    Sse,
}

impl Framing {
    fn of(request: &HttpRequest) -> Self {
        let accept = request
            .headers()
            .get(ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if accept.contains("text/event-stream") {
            Self::Sse
        } else {
            Self::Ndjson
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Sse => "text/event-stream",
        })
    }

    /// One event; `json` has no line breaks.
    fn frame(self, number: Option<u64>, json: &str) -> Bytes {
        Bytes::from(match (self, number) {
            (Self::Ndjson, _) => format!("{json}\n"),
            (Self::Sse, None) => format!("data: {json}\n\n"),
            (Self::Sse, Some(number)) => format!("id: {number}\ndata: {json}\n\n"),
        })
    }

    /// An empty line, or a comment: every reader skips it.
    fn heartbeat(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Ndjson => b"\n",
            Self::Sse => b": still here\n\n",
        })
    }
}

/// Answers one message as a stream.
#[utoipa::path(post, path = "/v1/chat/stream", tag = "chat", request_body = super::docs::ChatBody,
    params(super::docs::PostHeaders),
    responses(
        (status = 200, description = "One JSON object a line (or an SSE event): started, delta, reset, turn, tool_call, tool_result, last decision or error", body = String, content_type = "application/x-ndjson"),
        (status = "default", description = "A problem document", body = super::error::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn decide(request: HttpRequest, payload: Payload, edge: Data<Edge>) -> HttpResponse {
    let request_id = request::request_id(request.headers());
    let accepted = match chat::accept(&request, payload, &edge, "/v1/chat/stream", &request_id).await {
        Ok(accepted) => accepted,
        Err(problem) => return problem.respond(),
    };
    let framing = Framing::of(&request);
    let (sink, events) = EventSink::channel();
    let (send_last, last) = oneshot::channel();
    let id = Arc::clone(&request_id);
    // On the worker, not in the response: the work is the run's, which the surface waits for.
    actix_web::rt::spawn(async move {
        let line = match accepted.decide(&edge, Some(sink)).await {
            Ok(answer) => with_type("decision", &answer.body),
            Err(error) => with_type("error", &Problem::of(error, &id).to_json()),
        };
        // A client that has left needs no last line.
        let _ = send_last.send(line);
    });
    let mut builder = HttpResponse::Ok();
    builder.insert_header((CONTENT_TYPE, framing.content_type()));
    builder.insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store")));
    builder.insert_header(("x-accel-buffering", "no"));
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        builder.insert_header((REQUEST_ID, id));
    }
    builder.streaming(lines(framing, events, last))
}

/// Events until the run is over, then the last line.
fn lines(
    framing: Framing,
    events: mpsc::Receiver<Numbered>,
    last: oneshot::Receiver<String>,
) -> impl stream::Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((events, last)), move |state| async move {
        let (mut events, last) = state?;
        match timeout(HEARTBEAT, events.recv()).await {
            Err(_quiet) => Some((Ok(framing.heartbeat()), Some((events, last)))),
            Ok(Some(told)) => {
                let json =
                    serde_json::to_string(&told.event).unwrap_or_else(|_| unreachable!("an event prints as JSON"));
                Some((Ok(framing.frame(Some(told.number), &json)), Some((events, last))))
            }
            // The run has let go of its sink; what is left is the commit.
            Ok(None) => {
                let line = last.await.unwrap_or_else(|_| r#"{"type":"error"}"#.to_owned());
                Some((Ok(framing.frame(None, &line)), None))
            }
        }
    })
}

/// `{"type":"…",` before the fields of an object's text.
fn with_type(kind: &str, object: &str) -> String {
    // A problem document has a `type` of its own: the event's name for it is the key `problem`.
    if kind == "error" {
        return format!("{{\"type\":\"error\",\"problem\":{object}}}");
    }
    match object.strip_prefix('{') {
        Some(fields) => format!("{{\"type\":\"{kind}\",{fields}"),
        None => format!("{{\"type\":\"{kind}\"}}"),
    }
}
