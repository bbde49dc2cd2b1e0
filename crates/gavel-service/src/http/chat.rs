//! `POST /v1/chat`: receives one message, returns one decision.

use std::ops::ControlFlow;
use std::pin::Pin;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tracing::{Instrument, Span};
use utoipa::ToSchema;

use crate::api::chat::{AgentDecision, ChatBody};
use crate::api::events::{Event, Numbered};
use crate::domain::decision::Outcome;
use crate::domain::ids::UserId;
use crate::http::answer::{Answer, Shared};
use crate::http::body;
use crate::http::error::{Code, Error, Problem};
use crate::http::exchange::Exchange;
use crate::http::headers::{self, IDEMPOTENCY_REPLAYED};
use crate::http::openapi::About;
use crate::http::openapi::lines::{Union, line};
use crate::http::request::{Ctx, Meta, Request, Room, Take};
use crate::http::routes::operations;
use crate::http::stream::{self, Failed, Framing, Lines, Out, Silent, Stream};
use crate::ports::metrics::HTTP_PROBLEMS;
use crate::surfaces::chat::request::ChatRequest;
use crate::surfaces::chat::{self, EventSink, retry_after};
use crate::surfaces::problem::Problem as Cause;

operations! {
    decide = decide, decideStreamed = decide_streamed:
        [Forbidden, StillRunning, OutcomeUnrecorded, Internal];
}

/// Decides about one message.
///
/// The message comes with its whole context; gavel keeps nothing between requests except its records. The decision is
/// recorded before the response is sent.
#[utoipa::path(
    post,
    path = "/v1/chat",
    responses(
        (
            status = 200,
            description = "The decision, for every outcome except the two below.",
            body = AgentDecision,
            example = json!(example())
        ),
        (
            status = 429,
            description = "`REFUSAL:RATE_LIMITED`, a decision like any other.",
            headers(("Retry-After"))
        ),
        (
            status = 503,
            description = "`REFUSAL:OVERLOADED`, a decision like any other.",
            headers(("Retry-After"))
        ),
    )
)]
pub(super) async fn decide(
    ctx: Ctx,
    Asked(request): Asked,
    Meta(meta): Meta,
    Asking(user): Asking,
) -> Result<Decided, Error> {
    let answer = ctx.chat.decide(&ctx.caller, user, request, meta, None).await?;
    Ok(Decided(answer))
}

/// The message and its context. The body also names the user.
pub(crate) struct Asked(ChatRequest);

impl Take for Asked {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let body = request.arriving().json().await?;
        let given = body::parse(request.keep(body))?;
        let mut chat = ChatRequest::new(given)?;
        request.user = request.caller().act_for(chat.user.take())?;
        if request.user.is_none() {
            let detail = "is missing; a string is required, since no token names the user";
            return Err(Error::invalid("/user_id", detail));
        }
        Ok(Self(chat))
    }

    fn describe(about: &mut About<'_>) {
        let example = r#"{"message": "add a task to call mom", "user_id": "me"}"#;
        about.json::<ChatBody>("At most 1 MiB. Unknown fields are refused.", example, true);
        about.problems(&[Code::UserMismatch]);
    }
}

/// The user of the message. It is taken last, since other parameters refer to it.
pub(crate) struct Asking(UserId);

impl Take for Asking {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Ok(Self(request.user.take().ok_or(Code::Internal)?))
    }
}

/// A decision as it was recorded, byte for byte.
pub(crate) struct Decided(chat::Answer);

impl Answer for Decided {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        let mut response = head(&self.0);
        exchange.finish(Ok(response.body(Bytes::from_owner(Shared(self.0.body)))))
    }

    fn describe(about: &mut About<'_>) {
        about.answers::<AgentDecision>(&HEADERS);
    }
}

/// Headers of a decision, recorded or streamed.
const HEADERS: [&str; 3] = ["RateLimit-Policy", "RateLimit", "Idempotency-Replayed"];

/// The head of a response. One that recovery stored is a problem, every other a decision.
fn head(answer: &chat::Answer) -> HttpResponseBuilder {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    let media = if is_decision(answer) {
        headers::JSON
    } else {
        headers::PROBLEM_JSON
    };
    response.insert_header((header::CONTENT_TYPE, media));
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    for header in answer.quota.iter().flat_map(headers::rate_limit) {
        response.insert_header(header);
    }
    if answer.status != 200 && is_decision(answer) {
        if let Some(decision) = &answer.decision {
            HTTP_PROBLEMS
                .with([decision.outcome_category.code().into()])
                .increment(1);
        }
        response.insert_header((header::RETRY_AFTER, headers::seconds(retry_after(answer.quota))));
    }
    if answer.decision.is_none() {
        response.insert_header((IDEMPOTENCY_REPLAYED, headers::TRUE));
    }
    response
}

/// Whether a stored response is a decision; otherwise it is the problem that recovery stored instead.
fn is_decision(answer: &chat::Answer) -> bool {
    Outcome::ALL.iter().any(|outcome| outcome.status() == answer.status)
}

line! {
    /// A line of a chat's stream: an event, or the last line.
    StreamLine = Union::default().and::<Event>("Chat").and::<LastLine>("").and::<Failed<Problem<'_>>>("").and::<Silent>("")
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[serde(tag = "type")]
#[expect(
    dead_code,
    reason = "describes the line that http/lines.rs writes around a recorded decision"
)]
enum LastLine {
    /// The last line: the decision as `POST /v1/chat` returns it.
    Decision(AgentDecision),
}

/// A decision with one tool call.
fn example() -> Value {
    json!({
        "decision_id": "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f",
        "conversation_id": "c-1",
        "decision_type": "INVOKE_TOOL",
        "outcome_category": "SUCCESS:TASK_COMPLETED",
        "response": "Added “call mom” to your tasks.",
        "tool_calls": [{
            "sequence": 1,
            "tool": "add_task",
            "parameters": {"description": "call mom"},
            "result": {"success": true, "data": {"id": "7"}, "error": null, "duration_ms": 4},
        }],
        "iterations": 2,
        "model": "gemini-3.8-flash",
        "requested_model": "gemini-3.7-flash",
        "usage": {"input_tokens": 1200, "output_tokens": 40, "thought_tokens": 0, "cached_tokens": 1000},
        "duration_ms": 1310,
    })
}

/// Lines that are ready at the same time are sent together, up to about this many bytes.
const BATCH: usize = 16 * 1024;

type Deciding = Pin<Box<dyn Future<Output = Result<chat::Answer, Cause>>>>;

/// Decides about one message and streams the events.
///
/// Streams the events of the run as they happen; a silent stream sends a heartbeat every 10 s. A request refused before
/// the run starts has its own status; a replay is only the last line. A client that disconnects does not cancel.
#[utoipa::path(
    post,
    path = "/v1/chat/stream",
    responses(
        (
            status = 200,
            description = "One object per line, the last a decision or an error. With `Accept: text/event-stream` each is an \
                           SSE message with an id."
        ),
        (status = 429, description = "`REFUSAL:RATE_LIMITED`: only the last line.", headers(("Retry-After"))),
        (status = 503, description = "`REFUSAL:OVERLOADED`: only the last line.", headers(("Retry-After"))),
    )
)]
pub(crate) async fn decide_streamed(
    ctx: Ctx,
    Asked(request): Asked,
    Room(share): Room,
    Meta(meta): Meta,
    Asking(user): Asking,
    form: Framing,
) -> Result<Streamed, Error> {
    let (sink, mut events) = EventSink::channel();
    let deciding = async move { ctx.chat.decide(&ctx.caller, user, request, meta, Some(sink)).await };
    let mut deciding: Deciding = Box::pin(deciding.instrument(Span::current()));
    // Events first: if both are ready, the events precede the decision.
    let first = tokio::select! {
        biased;
        Some(event) = events.recv() => event,
        ended = &mut deciding => return Ok(Streamed::AtOnce(at_once(&ended?, form))),
    };
    let mut written = BytesMut::new();
    form.event(&first, &mut written);
    let lines = ChatLines {
        events: Some(events),
        deciding,
        number: first.number,
    };
    Ok(Streamed::AsDecided(Stream {
        share: share.ok(),
        first: written,
        ..Stream::new(form, None, lines)
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
fn at_once(answer: &chat::Answer, form: Framing) -> HttpResponse {
    let mut response = head(answer);
    stream::frame(&mut response, form);
    let mut line = BytesMut::new();
    last(answer, 1, form, &mut line);
    response.body(line.freeze())
}

fn last(answer: &chat::Answer, number: u64, form: Framing, out: &mut BytesMut) {
    if is_decision(answer) {
        form.decision(&answer.body, number, out);
    } else {
        form.problem(Some(number), &answer.body, out);
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
    type Line = StreamLine;

    async fn next(&mut self, out: &mut Out<'_>) -> Result<ControlFlow<()>, Error> {
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
                    Err(error) => out.form.problem(Some(self.number), &out.exchange.problem(error), out.bytes),
                }
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
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
