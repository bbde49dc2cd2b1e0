//! `POST /v1/chat/stream`: streams the events of a run as NDJSON or server-sent events.
//!
//! A request refused before the run starts gets its own status, as on `/v1/chat`. A decision made at once (a replay, a
//! refusal by quota) is a stream with only its last line. A client that disconnects does not cancel: the surface
//! continues, and only the stream ends.

use std::ops::ControlFlow;
use std::pin::Pin;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use bytes::BytesMut;
use tokio::sync::mpsc::Receiver;
use tracing::{Instrument, Span};

use super::{Asked, Asking, HEADERS, PROBLEMS, Shape, is_decision, wire};
use crate::api::events::{Event, Numbered};
use crate::http::about::About;
use crate::http::answer::Answer;
use crate::http::error::Error;
use crate::http::exchange::Exchange;
use crate::http::lines::Framing;
use crate::http::request::{Ctx, Meta, Room};
use crate::http::stream::{self, Lines, Out, Stream};
use crate::surfaces::chat::{self, ChatError, EventSink};

/// Lines that are ready at the same time are sent together, up to about this many bytes.
const BATCH: usize = 16 * 1024;

type Deciding = Pin<Box<dyn Future<Output = Result<chat::Answer, ChatError>>>>;

/// Decides about one message and streams the events.
///
/// Streams the events of the run as they happen; a silent stream sends a heartbeat every 10 s. A request refused before
/// the run starts has its own status; a replay is only the last line. A client that disconnects does not cancel.
#[utoipa::path(
    post,
    path = "/v1/chat/stream",
    operation_id = "decideStreamed",
    tag = "chat",
    responses(
        (
            status = 200,
            description = "One object per line, the last a decision or an error. With `Accept: text/event-stream` each is an \
                           SSE message with an id."
        ),
        (status = 429, description = "`REFUSAL:RATE_LIMITED`: only the last line.", headers(("Retry-After"))),
        (status = 503, description = "`REFUSAL:OVERLOADED`: only the last line.", headers(("Retry-After"))),
    ),
    extensions(("x-problems" = json!(PROBLEMS)))
)]
pub(crate) async fn decide(
    ctx: Ctx,
    Asked(request): Asked,
    Room(share): Room,
    Meta(meta): Meta,
    Asking(user): Asking,
    form: Framing,
) -> Result<Streamed, Error> {
    let (sink, mut events) = EventSink::channel();
    let keyed = meta.idempotency.is_some();
    let deciding = async move { ctx.chat.decide(&ctx.caller, user, request, meta, Some(sink)).await };
    let mut deciding: Deciding = Box::pin(deciding.instrument(Span::current()));
    // Events first: if both are ready, the events precede the decision.
    let first = tokio::select! {
        biased;
        Some(event) = events.recv() => event,
        ended = &mut deciding => return Ok(Streamed::AtOnce(at_once(&ended?, keyed, form))),
    };
    let mut written = BytesMut::new();
    form.event(&first, &mut written);
    let lines = ChatLines {
        events: Some(events),
        deciding,
        number: first.number,
    };
    Ok(Streamed::AsDecided(Stream {
        head: stream::head(StatusCode::OK, form),
        form,
        share: share.ok(),
        first: written,
        lines,
    }))
}

/// A decision in progress, or one that was made before its first event.
pub(crate) enum Streamed {
    AsDecided(Stream<ChatLines>),
    AtOnce(HttpResponse),
}

impl Answer for Streamed {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        match self {
            Self::AsDecided(stream) => stream.respond(exchange),
            Self::AtOnce(response) => response.respond(exchange),
        }
    }

    fn describe(about: &mut About<'_>) {
        Stream::<ChatLines>::describe(about);
        about.headers(&HEADERS);
    }
}

/// The response for a decision made before the first event.
fn at_once(answer: &chat::Answer, keyed: bool, form: Framing) -> HttpResponse {
    let shape = Shape::of(answer, keyed);
    let mut response = stream::head(shape.status, form);
    for header in shape.headers {
        response.insert_header(header);
    }
    let mut line = BytesMut::new();
    last(answer, 1, form, &mut line);
    response.body(line.freeze())
}

fn last(answer: &chat::Answer, number: u64, form: Framing, out: &mut BytesMut) {
    if is_decision(answer) {
        form.decision(&answer.body, number, out);
    } else {
        form.error(&answer.body, number, out);
    }
}

/// The events of a run, and its decision.
pub(crate) struct ChatLines {
    /// Absent after all events were sent.
    events: Option<Receiver<Numbered<Event>>>,
    deciding: Deciding,
    /// Number of the last event.
    number: u64,
}

impl Lines for ChatLines {
    const RESUMABLE: bool = false;
    type Line = wire::StreamLine;

    async fn next(&mut self, out: &mut Out<'_>) -> ControlFlow<()> {
        // Events first: if both are ready, the events precede the decision.
        tokio::select! {
            biased;
            event = some(&mut self.events) => match event {
                Some(event) => self.tell_all(&event, out),
                None => self.events = None,
            },
            ended = &mut self.deciding => {
                self.number += 1;
                match ended {
                    Ok(answer) => last(&answer, self.number, out.form, out.bytes),
                    Err(error) => out.form.error(&out.exchange.problem(error), self.number, out.bytes),
                }
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

impl ChatLines {
    /// Writes an event and those that are already available.
    fn tell_all(&mut self, first: &Numbered<Event>, out: &mut Out<'_>) {
        self.tell(first, out);
        while out.bytes.len() < BATCH
            && let Some(Ok(event)) = self.events.as_mut().map(Receiver::try_recv)
        {
            self.tell(&event, out);
        }
    }

    fn tell(&mut self, event: &Numbered<Event>, out: &mut Out<'_>) {
        self.number = event.number;
        out.form.event(event, out.bytes);
    }
}

/// The next event; pending forever when there are no more.
async fn some(events: &mut Option<Receiver<Numbered<Event>>>) -> Option<Numbered<Event>> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
