//! The one writer of streams: lines from a surface, heartbeats while it is silent, and the end of the exchange.
//!
//! A client that disconnects cancels nothing: only its stream ends.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior};
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::openapi::{Content, RefOr, Response};

use crate::api::events::{Event, Numbered};
use crate::domain::budget::Share;
use crate::http::State;
use crate::http::answer::{Answer, Shared};
use crate::http::error::Error;
use crate::http::exchange::Exchange;
use crate::http::headers::{self, ACCEL_BUFFERING, only};
use crate::http::openapi::{About, header as parameter, in_query, string};
use crate::http::query::{self, Fields, Parameters};
use crate::http::request::{Query, Request, Take};

/// Unused bytes that a chunk may hold.
const SPARE: usize = 4 << 10;

/// The most that is handed to a connection at once. What is larger is shared with the other streams that send it.
const PIECE: usize = 64 << 10;

/// Where the lines of a stream come from.
pub(super) trait Lines {
    /// Whether a client can continue the stream at another process. Such a stream ends when this process stops, since
    /// its run may continue for hours.
    const RESUMABLE: bool;

    /// What each line is, for the API description.
    type Line: ToSchema;

    /// Writes the next lines, or none; `Break` after the last one. If the future is dropped, no line is lost. An error is
    /// the last line, without an id: a reader can continue after the line before it.
    async fn next(&mut self, out: &mut Out<'_>) -> Result<ControlFlow<()>, Error>;
}

/// The destination of lines.
pub(super) struct Out<'a> {
    /// Formats problems.
    pub(super) exchange: &'a Exchange,
    pub(super) form: Framing,
    pub(super) bytes: &'a mut BytesMut,
}

/// Makes the response a stream.
pub(super) fn frame(response: &mut HttpResponseBuilder, form: Framing) {
    response.insert_header((header::CONTENT_TYPE, form.content_type()));
    // A buffering proxy would delay the lines.
    response.insert_header((ACCEL_BUFFERING, HeaderValue::from_static("no")));
}

/// The answer that streams `lines`, after those of `first`. It holds the share while the stream is open.
pub(super) struct Stream<L> {
    pub(super) head: HttpResponseBuilder,
    pub(super) form: Framing,
    pub(super) share: Option<Share>,
    pub(super) first: BytesMut,
    pub(super) lines: L,
}

impl<L> Stream<L> {
    pub(super) fn new(form: Framing, share: Option<Share>, lines: L) -> Self {
        let mut head = HttpResponse::Ok();
        frame(&mut head, form);
        Self {
            head,
            form,
            share,
            first: BytesMut::new(),
            lines,
        }
    }
}

impl<L: Lines + 'static> Answer for Stream<L> {
    fn respond(mut self, exchange: Exchange) -> HttpResponse {
        self.head
            .insert_header((headers::REQUEST_ID, exchange.id.header.clone()));
        self.head.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
        let mut heartbeat = tokio::time::interval(exchange.state.edge.limits.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        let writer = Writer {
            state: Data::clone(&exchange.state),
            exchange,
            form: self.form,
            lines: Some(self.lines),
            heartbeat,
            ready: self.first,
            rest: Bytes::new(),
            _share: self.share,
        };
        self.head.streaming(stream::unfold(writer, Writer::next))
    }

    fn describe(about: &mut About<'_>) {
        let line = Content::new(Some(about.schema::<L::Line>()));
        about.contents(&["application/x-ndjson", "text/event-stream"], &line);
    }
}

/// None for a reader that has received the last event. An EventSource treats an empty 200 as a broken stream and
/// reconnects forever; 204 ends it.
impl<L: Lines + 'static> Answer for Option<Stream<L>> {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        match self {
            Some(stream) => stream.respond(exchange),
            None => exchange.finish(Ok(HttpResponse::NoContent().finish())),
        }
    }

    fn describe(about: &mut About<'_>) {
        let lines = "One event per line. With `Accept: text/event-stream` each is an SSE message.";
        for (status, description) in [("200", lines), ("204", "You have received the last event already.")] {
            let response = Response::new(description);
            let responses = &mut about.operation.responses.responses;
            responses.insert(status.to_owned(), RefOr::T(response));
        }
        Stream::<L>::describe(about);
    }
}

impl Take for Framing {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Ok(Self::asked_for(&request.http))
    }
}

/// The place of an event in a stream.
pub(super) trait Place: Sized {
    const EXAMPLE: &'static str;

    fn parse(text: &str) -> Option<Self>;
}

impl Place for u64 {
    const EXAMPLE: &'static str = "12";

    fn parse(text: &str) -> Option<Self> {
        query::number(text)
    }
}

const LAST_EVENT: &str = "Last-Event-ID";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The last event that a reader has: of the header `Last-Event-ID`, or of `after` for clients that cannot set headers.
pub(super) struct After<T> {
    pub(super) place: Option<T>,
    is_header: bool,
}

impl<T> After<T> {
    /// The error for an event that is not in this stream.
    pub(super) fn unknown(&self, detail: &'static str) -> Error {
        match self.is_header {
            true => Error::header(LAST_EVENT, detail),
            false => Error::invalid("after", detail),
        }
    }
}

impl<T: Place> Parameters for After<T> {
    fn read(fields: &mut Fields<'_>) -> Self {
        let allowed = format!("the id of an event, such as {}", T::EXAMPLE);
        let place = fields.take("after", || in_query(AFTER, event_id()), &allowed, T::parse);
        Self {
            place,
            is_header: false,
        }
    }
}

impl<T: Place> Take for After<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let Query(after) = Query::take(request).await?;
        let headers = request.http.headers();
        if !headers.contains_key(&LAST_EVENT_ID) {
            return Ok(after);
        }
        let value = only(headers, &LAST_EVENT_ID).and_then(|value| value.to_str().ok());
        let detail = "must be the id of the last event that you received";
        let place = value
            .and_then(T::parse)
            .ok_or_else(|| Error::header(LAST_EVENT, detail))?;
        Ok(Self {
            place: Some(place),
            is_header: true,
        })
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(parameter(LAST_EVENT, AFTER, event_id()));
        Query::<Self>::describe(about);
    }
}

const AFTER: &str = "The id of the last event received; the events after it follow.";

fn event_id() -> ObjectBuilder {
    string().pattern(Some("^[0-9]{1,18}([.][0-9]{1,18}){0,15}$"))
}

/// A stream in progress. If dropped before its last line, it counts as a client that left.
struct Writer<L> {
    state: Data<State>,
    exchange: Exchange,
    form: Framing,
    /// Absent after the last line.
    lines: Option<L>,
    heartbeat: Interval,
    /// Lines that are not sent yet.
    ready: BytesMut,
    /// The part of a large chunk that is not sent yet.
    rest: Bytes,
    _share: Option<Share>,
}

impl<L: Lines> Writer<L> {
    /// The next chunk of the stream, once there is one.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        while self.ready.is_empty() && self.rest.is_empty() {
            let mut lines = self.lines.take()?;
            let mut out = Out {
                exchange: &self.exchange,
                form: self.form,
                bytes: &mut self.ready,
            };
            let flow = tokio::select! {
                flow = lines.next(&mut out) => flow.unwrap_or_else(|error| {
                    let problem = self.exchange.problem(error);
                    self.form.problem(None, &problem, &mut self.ready);
                    ControlFlow::Break(())
                }),
                _ = self.heartbeat.tick() => {
                    self.form.heartbeat(&mut self.ready);
                    match L::RESUMABLE && self.state.edge.surroundings.stopping() {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                }
            };
            match flow {
                ControlFlow::Continue(()) => self.lines = Some(lines),
                ControlFlow::Break(()) => self.exchange.answered(StatusCode::OK),
            }
        }
        self.heartbeat.reset();
        if self.rest.is_empty() {
            let ready = std::mem::take(&mut self.ready);
            self.rest = match ready.len() {
                large if large > PIECE => self.state.chunks.share(&ready),
                // A client that does not read keeps it: without the room that it grew by.
                len if ready.capacity() - len > SPARE => Bytes::copy_from_slice(&ready),
                _ => ready.freeze(),
            };
        }
        let chunk = self.rest.split_to(self.rest.len().min(PIECE));
        Some((Ok(chunk), self))
    }
}

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// One JSON object per line, `application/x-ndjson`.
    Ndjson,
    /// `text/event-stream` (WHATWG HTML, server-sent events).
    Sse,
}

/// The line that ends a failed stream; `P` is a problem as the route spells it.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[serde(tag = "type")]
#[expect(dead_code, reason = "describes what `Framing::problem` writes")]
pub(super) enum Failed<P> {
    /// The last line, if the stream failed.
    Error {
        /// The problem.
        problem: P,
    },
}

/// No event happened for a while.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Silent {
    /// The only line of this kind.
    Heartbeat,
}

impl Framing {
    /// Server-sent events when `Accept` names them, else NDJSON.
    fn asked_for(request: &HttpRequest) -> Self {
        match headers::accepted(request)
            .iter()
            .any(|media| media == "text/event-stream")
        {
            true => Self::Sse,
            false => Self::Ndjson,
        }
    }

    pub(super) const fn content_type(self) -> HeaderValue {
        match self {
            Self::Ndjson => HeaderValue::from_static("application/x-ndjson"),
            Self::Sse => HeaderValue::from_static("text/event-stream"),
        }
    }

    /// Appends an event.
    pub(super) fn event(self, event: &Numbered<Event>, out: &mut BytesMut) {
        self.object(Some(event.number), &event.event, out);
    }

    /// Appends an object with the id of its event. Without an id the reader's position is unchanged.
    pub(super) fn object(self, id: Option<impl Display>, object: &impl Serialize, out: &mut BytesMut) {
        self.line(id, out, |out| json(object, out));
    }

    /// Appends the last line of a successful stream: the recorded decision with its `type`.
    pub(super) fn decision(self, body: &str, number: u64, out: &mut BytesMut) {
        self.line(Some(number), out, |out| {
            out.put_slice(br#"{"type":"decision","#);
            // The body is an object with fields.
            out.put_slice(body.trim_start().trim_start_matches('{').as_bytes());
        });
    }

    /// Appends the last line of a failed stream: its problem.
    pub(super) fn problem(self, id: Option<u64>, problem: &str, out: &mut BytesMut) {
        self.line(id, out, |out| {
            out.put_slice(br#"{"type":"error","problem":"#);
            out.put_slice(problem.as_bytes());
            out.put_u8(b'}');
        });
    }

    /// Appends a heartbeat.
    fn heartbeat(self, out: &mut BytesMut) {
        match self {
            Self::Ndjson => self.object(None::<u64>, &Silent::Heartbeat, out),
            Self::Sse => out.put_slice(b": heartbeat\n\n"),
        }
    }

    fn line(self, id: Option<impl Display>, out: &mut BytesMut, object: impl FnOnce(&mut BytesMut)) {
        if self == Self::Sse {
            if let Some(id) = id {
                out.put_slice(format!("id: {id}\n").as_bytes());
            }
            out.put_slice(b"data: ");
        }
        let begins = out.len();
        object(out);
        // JSON that a model or a tool wrote may have line breaks between its tokens, which would end the line.
        for byte in &mut out[begins..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        out.put_slice(match self {
            Self::Ndjson => b"\n".as_slice(),
            Self::Sse => b"\n\n",
        });
    }
}

fn json(value: &impl Serialize, out: &mut BytesMut) {
    serde_json::to_writer(out.writer(), value)
        .unwrap_or_else(|error| unreachable!("an event serializes to JSON: {error}"));
}

/// The large chunks that some stream still has to send.
#[derive(Default)]
pub(super) struct Chunks {
    /// By hash. A chunk is freed with its last stream, its entry when the next chunk comes.
    held: Mutex<HashMap<u64, Weak<Vec<u8>>>>,
    hasher: RandomState,
}

impl Chunks {
    /// These bytes, shared with every stream that holds the same ones.
    pub(super) fn share(&self, bytes: &[u8]) -> Bytes {
        let hash = self.hasher.hash_one(bytes);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held.get(&hash).and_then(Weak::upgrade);
        let chunk = known.filter(|known| known.as_slice() == bytes).unwrap_or_else(|| {
            held.retain(|_, chunk| chunk.strong_count() > 0);
            let chunk = Arc::new(bytes.to_vec());
            held.insert(hash, Arc::downgrade(&chunk));
            chunk
        });
        Bytes::from_owner(Shared(chunk))
    }
}

#[cfg(test)]
mod framing_tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn accept_chooses_the_form() {
        let form = |accept: &'static str| {
            Framing::asked_for(
                &TestRequest::default()
                    .insert_header(("accept", accept))
                    .to_http_request(),
            )
        };
        assert_eq!(form("text/event-stream"), Framing::Sse);
        assert_eq!(form("application/json, Text/Event-Stream;q=0.9"), Framing::Sse);
        assert_eq!(form("*/*"), Framing::Ndjson);
        assert_eq!(form("application/x-ndjson"), Framing::Ndjson);
        assert_eq!(form("text/event-stream; Q=0.0, */*"), Framing::Ndjson);
    }

    #[test]
    fn an_event_is_one_line_or_one_sse_message() {
        let event = Numbered {
            number: 3,
            event: Event::Delta { text: "a\nb".into() },
        };
        assert_eq!(
            written(|out| Framing::Ndjson.event(&event, out)),
            "{\"type\":\"delta\",\"text\":\"a\\nb\"}\n"
        );
        let sse = written(|out| Framing::Sse.event(&event, out));
        assert_eq!(sse, "id: 3\ndata: {\"type\":\"delta\",\"text\":\"a\\nb\"}\n\n");
    }

    #[test]
    fn the_decision_stays_on_its_line_whatever_a_tool_returned() {
        let body = "{\"response\":\"x\\ny\",\"data\":{\r\n  \"a\": 1\n}}";
        let line = written(|out| Framing::Ndjson.decision(body, 9, out));
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["type"], "decision");
        assert_eq!(read["response"], "x\ny");
        assert_eq!(read["data"]["a"], 1);
    }
}

#[cfg(test)]
mod chunks_tests {
    use super::*;

    /// Promise: bounded faults. Many readers of one event cost its bytes once.
    #[test]
    fn equal_chunks_are_held_once_and_freed_with_the_last_reader() {
        let chunks = Chunks::default();
        let (one, other) = (chunks.share(b"a turn"), chunks.share(b"a turn"));
        assert_eq!(one.as_ptr(), other.as_ptr());
        let different = chunks.share(b"another turn");
        assert_eq!(different.as_ref(), b"another turn");
        assert_eq!(chunks.held.lock().unwrap().len(), 2);
        drop((one, other));
        drop(chunks.share(b"a third turn"));
        assert_eq!(chunks.held.lock().unwrap().len(), 2);
    }
}
