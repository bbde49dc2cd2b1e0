//! `POST /v1/chat/stream`: streams the events of a run as NDJSON or server-sent events.
//!
//! A request refused before the run starts gets its own status, as on `/v1/chat`. A decision made at once (a replay, a
//! refusal by quota) is a stream with only its last line. A client that disconnects does not cancel: the surface
//! continues, and only the stream ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::Instrument;

use super::{Ask, PROBLEMS, Shape, ask, is_decision, wire};
use crate::domain::budget::Share;
use crate::domain::event::Numbered;
use crate::http::State;
use crate::http::error::Error;
use crate::http::exchange::Exchange;
use crate::http::headers::{self, ACCEL_BUFFERING};
use crate::http::lines::Form;
use crate::http::openapi::params::Acting;
use crate::http::routes::Route;
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
pub(in crate::http) async fn decide(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ChatStream));
    let asked = ask(&state, &exchange, &request, payload, Route::ChatStream);
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
    let mut response = open(StatusCode::OK, form);
    response.insert_header((headers::REQUEST_ID, exchange.id.header.clone()));
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    response.streaming(stream::unfold(
        Telling::new(exchange, form, events, deciding, state.edge.limits.heartbeat, &first).with(share.ok()),
        Telling::next,
    ))
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

fn open(status: StatusCode, form: Form) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, form.content_type()));
    // A buffering proxy would delay the lines.
    response.insert_header((ACCEL_BUFFERING, header::HeaderValue::from_static("no")));
    response
}

/// The response for a decision made before the first event.
fn at_once(answer: &Answer, keyed: bool, form: Form) -> HttpResponse {
    let shape = Shape::of(answer, keyed);
    let mut response = open(shape.status, form);
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

/// A stream in progress. If dropped before its last line, it counts as a client that left.
struct Telling {
    exchange: Exchange,
    form: Form,
    /// Absent after all events were sent.
    events: Option<Receiver<Numbered>>,
    /// Absent after the last line was sent.
    deciding: Option<Deciding>,
    /// Number of the last event.
    number: u64,
    heartbeat: Interval,
    out: BytesMut,
    share: Option<Share>,
}

impl Telling {
    fn new(
        exchange: Exchange,
        form: Form,
        events: Receiver<Numbered>,
        deciding: Deciding,
        heartbeat: Duration,
        first: &Numbered,
    ) -> Self {
        let mut heartbeat = tokio::time::interval(heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        let mut telling = Self {
            exchange,
            form,
            events: Some(events),
            deciding: Some(deciding),
            number: 0,
            heartbeat,
            out: BytesMut::new(),
            share: None,
        };
        telling.tell(first);
        telling
    }

    /// Holds the share while the stream is open.
    fn with(mut self, share: Option<Share>) -> Self {
        self.share = share;
        self
    }

    fn tell(&mut self, event: &Numbered) {
        self.number = event.number;
        self.form.event(event, &mut self.out);
    }

    /// The next chunk of the stream, once there is one.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.out.is_empty() {
            self.wait().await?;
        }
        self.heartbeat.reset();
        let piece = self.out.split().freeze();
        Some((Ok(piece), self))
    }

    /// Waits for events, the decision, or the heartbeat. `None` after the end.
    async fn wait(&mut self) -> Option<()> {
        let deciding = self.deciding.as_mut()?;
        tokio::select! {
            biased;
            event = some(&mut self.events) => match event {
                Some(event) => self.tell_all(&event),
                None => self.events = None,
            },
            ended = deciding => self.end(ended),
            _ = self.heartbeat.tick() => self.form.heartbeat(&mut self.out),
        }
        Some(())
    }

    /// Writes an event and those that are already available.
    fn tell_all(&mut self, first: &Numbered) {
        self.tell(first);
        while self.out.len() < BATCH
            && let Some(Ok(event)) = self.events.as_mut().map(Receiver::try_recv)
        {
            self.tell(&event);
        }
    }

    fn end(&mut self, ended: Result<Answer, ChatError>) {
        self.deciding = None;
        self.number += 1;
        match ended {
            Ok(answer) => last(&answer, self.number, self.form, &mut self.out),
            Err(error) => {
                let problem = self.exchange.problem(error);
                self.form.error(&problem, self.number, &mut self.out);
            }
        }
        self.exchange.answered(StatusCode::OK);
    }
}

/// The next event; pending forever when there are no more.
async fn some(events: &mut Option<Receiver<Numbered>>) -> Option<Numbered> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
