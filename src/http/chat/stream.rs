//! `POST /v1/chat/stream`: streams the events of a run as NDJSON or server-sent events.
//!
//! A request refused before the run starts gets its own status, as on `/v1/chat`. A decision made at once (a replay, a
//! refusal by quota) is a stream with only its last line. A client that disconnects does not cancel: the surface
//! continues, and only the stream ends.

use crate::http::request::Raw;
use std::ops::ControlFlow;
use std::pin::Pin;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use bytes::BytesMut;
use tokio::sync::mpsc::Receiver;
use tracing::Instrument;

use super::{Ask, PROBLEMS, Shape, ask, is_decision, wire};
use crate::domain::event::{Event, Numbered};
use crate::http::State;
use crate::http::error::Error;
use crate::http::exchange::Exchange;
use crate::http::lines::Form;
use crate::http::openapi::params::Acting;
use crate::http::stream::{self, Lines, Out};
use crate::surfaces::chat::{Answer, ChatError, EventSink};

/// Lines that are ready at the same time are sent together, up to about this many bytes.
const BATCH: usize = 16 * 1024;

type Deciding = Pin<Box<dyn Future<Output = Result<Answer, ChatError>>>>;

/// Decides about one message and streams the events.
///
/// Streams the events of the run as they happen; a silent stream sends a heartbeat every 10 s. A request refused before
/// the run starts has its own status; a replay is only the last line. A client that disconnects does not cancel.
#[utoipa::path(
    post,
    path = "/v1/chat/stream",
    operation_id = "decideStreamed",
    tag = "chat",
    params(Acting),
    request_body(
        content = wire::ChatRequest,
        description = "At most 1 MiB. Unknown fields are refused.",
        example = json!({"message": "add a task to call mom", "user_id": "me"})
    ),
    responses(
        (
            status = 200,
            description = "One object per line, the last a decision or an error. With `Accept: text/event-stream` each is an \
                           SSE message with an id.",
            content((wire::StreamLine = "application/x-ndjson"), (wire::StreamLine = "text/event-stream")),
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"))
        ),
        (
            status = 429,
            description = "`REFUSAL:RATE_LIMITED`: only the last line.",
            content((wire::StreamLine = "application/x-ndjson"), (wire::StreamLine = "text/event-stream")),
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Retry-After"))
        ),
        (
            status = 503,
            description = "`REFUSAL:OVERLOADED`: only the last line.",
            content((wire::StreamLine = "application/x-ndjson"), (wire::StreamLine = "text/event-stream")),
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Retry-After"))
        ),
    ),
    extensions(("x-problems" = json!(PROBLEMS)))
)]
pub(in crate::http) async fn decide(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let asked = ask(&state, &exchange, &request, payload);
    match asked.instrument(exchange.span.clone()).await {
        Ok(ask) => begin(&state, exchange, ask, Form::asked_for(request.headers())).await,
        Err(error) => exchange.finish(Err(error)),
    }
}

async fn begin(state: &Data<State>, exchange: Exchange, mut ask: Ask, form: Form) -> HttpResponse {
    let (sink, mut events) = EventSink::channel();
    let keyed = ask.keyed;
    let share = state.room.stream(&ask.caller, Some(&ask.user));
    ask.meta.shed = share.as_ref().err().copied();
    let mut deciding = put(state, &exchange, ask, sink);
    // Events first: if both are ready, the events precede the decision.
    let first = tokio::select! {
        biased;
        Some(event) = events.recv() => event,
        ended = &mut deciding => {
            return exchange.finish(ended.map(|answer| at_once(&answer, keyed, form)).map_err(Error::from));
        }
    };
    let mut written = BytesMut::new();
    form.event(&first, &mut written);
    let lines = ChatLines {
        events: Some(events),
        deciding,
        number: first.number,
    };
    stream::respond(
        stream::head(StatusCode::OK, form),
        state,
        exchange,
        form,
        share.ok(),
        written,
        lines,
    )
}

fn put(state: &Data<State>, exchange: &Exchange, ask: Ask, sink: EventSink) -> Deciding {
    let state = Data::clone(state);
    let deciding = async move {
        let Ask {
            caller,
            user,
            request,
            meta,
            ..
        } = ask;
        state.edge.chat.decide(&caller, user, request, meta, Some(sink)).await
    };
    Box::pin(deciding.instrument(exchange.span.clone()))
}

/// The response for a decision made before the first event.
fn at_once(answer: &Answer, keyed: bool, form: Form) -> HttpResponse {
    let shape = Shape::of(answer, keyed);
    let mut response = stream::head(shape.status, form);
    for header in shape.headers {
        response.insert_header(header);
    }
    let mut line = BytesMut::new();
    last(answer, 1, form, &mut line);
    response.body(line.freeze())
}

fn last(answer: &Answer, number: u64, form: Form, out: &mut BytesMut) {
    if is_decision(answer) {
        form.decision(&answer.body, number, out);
    } else {
        form.error(&answer.body, number, out);
    }
}

/// The events of a run, and its decision.
struct ChatLines {
    /// Absent after all events were sent.
    events: Option<Receiver<Numbered<Event>>>,
    deciding: Deciding,
    /// Number of the last event.
    number: u64,
}

impl Lines for ChatLines {
    const RESUMABLE: bool = false;

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
