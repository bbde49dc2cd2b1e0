//! The one writer of streams: lines from a surface, heartbeats while it is silent, and the end of the exchange.
//!
//! A client that disconnects cancels nothing: only its stream ends.

use std::convert::Infallible;
use std::ops::ControlFlow;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::time::{Interval, MissedTickBehavior};
use utoipa::ToSchema;
use utoipa::openapi::Content;
use utoipa::openapi::path::ParameterIn;

use super::State;
use super::about::About;
use super::answer::Answer;
use super::error::Error;
use super::exchange::Exchange;
use super::headers::{self, ACCEL_BUFFERING, only};
use super::lines::Framing;
use super::openapi::params::{header as parameter, string};
use super::query::{self, Fields};
use super::request::{Request, Take};
use crate::domain::budget::Share;

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

    /// Writes the next lines, or none; `Break` after the last one. If the future is dropped, no line is lost.
    async fn next(&mut self, out: &mut Out<'_>) -> ControlFlow<()>;
}

/// The destination of lines.
pub(super) struct Out<'a> {
    /// Formats problems.
    pub(super) exchange: &'a Exchange,
    pub(super) form: Framing,
    pub(super) bytes: &'a mut BytesMut,
}

/// The head of a stream's response.
pub(super) fn head(status: StatusCode, form: Framing) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, form.content_type()));
    // A buffering proxy would delay the lines.
    response.insert_header((ACCEL_BUFFERING, HeaderValue::from_static("no")));
    response
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
    pub(super) fn new(form: Framing, share: Share, lines: L) -> Self {
        Self {
            head: head(StatusCode::OK, form),
            form,
            share: Some(share),
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
        Stream::<L>::describe(about);
    }
}

impl Take for Framing {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Ok(Self::asked_for(request.http.headers()))
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
            true => Error::InvalidHeader(LAST_EVENT, detail),
            false => Error::invalid("after", detail),
        }
    }
}

impl<T: Place> Take for After<T> {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let mut fields = Fields::new(request.query());
        let allowed = format!("the id of an event, such as {}", T::EXAMPLE);
        let place = fields.take("after", &allowed, T::parse);
        fields.end()?;
        let headers = request.http.headers();
        let is_header = headers.contains_key(&LAST_EVENT_ID);
        let place = match is_header {
            true => {
                let value = only(headers, &LAST_EVENT_ID).and_then(|value| value.to_str().ok());
                let detail = "must be the id of the last event that you received";
                Some(
                    value
                        .and_then(T::parse)
                        .ok_or(Error::InvalidHeader(LAST_EVENT, detail))?,
                )
            }
            false => place,
        };
        Ok(Self { place, is_header })
    }

    fn describe(about: &mut About<'_>) {
        let id = || string().pattern(Some("^[0-9]{1,18}([.][0-9]{1,18}){0,15}$"));
        let text = "The id of the last event received; the events after it follow.";
        about.parameter(parameter(LAST_EVENT, text, id()));
        about.parameter(parameter("after", text, id()).parameter_in(ParameterIn::Query));
    }
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
                flow = lines.next(&mut out) => flow,
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
