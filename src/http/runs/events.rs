//! `GET /api/runs/{id}/events`: the events of a run, from its beginning or after `Last-Event-ID`, as NDJSON or
//! server-sent events. A reader that disconnects changes nothing, and can reconnect to any replica.

use std::convert::Infallible;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior};
use utoipa::ToSchema;

use super::id;
use crate::domain::budget::Share;
use crate::http::error::{Code, Error};
use crate::http::exchange::Exchange;
use crate::http::headers::{self, ACCEL_BUFFERING, only};
use crate::http::lines::{AgentFailed, Failed, Form, Silent};
use crate::http::openapi::lines::{Union, line};
use crate::http::openapi::params::{ActingUser, AfterEvent, LastEvent, RunPath};
use crate::http::routes::Route;
use crate::http::{State, acting, query};
use crate::surfaces::runs::{Cursor, PlacedEvent, RunError, RunEvent, Watch};

line! {
    /// A line of a run's events: an event, or the problem that ends the stream.
    RunLine = Union::default().and::<Line<'_>>("Run").and::<Failed>("").and::<Silent>("")
}

line! {
    /// A line of the events of a thread's run; a problem that ends the stream is in camelCase.
    AgentRunLine = Union::default().and::<Line<'_>>("Run").and::<AgentFailed>("Agent").and::<Silent>("")
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Watches the events of a run.
///
/// From the first event, or from the one after `Last-Event-ID`, until the run ends. The last event is `end`; a later
/// request gets 204. Events of the runs that it called follow at the place of the call, under their own `run_id`. The
/// replica that executes the run also sends partial text (`delta`); all replicas send the whole text in `turn`.
#[utoipa::path(
    get,
    path = "/api/runs/{id}/events",
    operation_id = "watchRun",
    tag = "runs",
    params(RunPath, ActingUser, LastEvent, AfterEvent),
    responses(
        (
            status = 200,
            description = "One event per line. With `Accept: text/event-stream` each is an SSE message.",
            content((RunLine = "application/x-ndjson"), (RunLine = "text/event-stream"))
        ),
        (status = 204, description = "You have received the last event already."),
    ),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound, Code::Overloaded])))
)]
pub(in crate::http) async fn follow(state: Data<State>, request: HttpRequest) -> HttpResponse {
    events_response(&state, &request, Route::RunEvents).await
}

async fn events_response(state: &Data<State>, request: &HttpRequest, route: Route) -> HttpResponse {
    let exchange = Exchange::begin(state, request, Some(route));
    match watch(state, request).await {
        Ok(Some((watch, share))) => begin(state, exchange, watch, share, Form::asked_for(request.headers())),
        // An EventSource treats an empty 200 as a broken stream and reconnects forever; 204 ends it.
        Ok(None) => exchange.finish(Ok(HttpResponse::NoContent().finish())),
        Err(error) => exchange.finish(Err(error)),
    }
}

/// Watches the events of a run.
///
/// As `GET /api/runs/{id}/events`.
#[utoipa::path(
    get,
    path = "/api/agent/runs/{id}/events",
    operation_id = "watchThreadRun",
    tag = "threads",
    params(RunPath, ActingUser, LastEvent, AfterEvent),
    responses(
        (
            status = 200,
            description = "One event per line. With `Accept: text/event-stream` each is an SSE message.",
            content((AgentRunLine = "application/x-ndjson"), (AgentRunLine = "text/event-stream"))
        ),
        (status = 204, description = "You have received the last event already."),
    ),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound, Code::Overloaded])))
)]
pub(in crate::http) async fn tell_of_thread(state: Data<State>, request: HttpRequest) -> HttpResponse {
    events_response(&state, &request, Route::ThreadRunEvents).await
}

/// `None` for a reader that has received the last event.
async fn watch(state: &State, request: &HttpRequest) -> Result<Option<(Watch, Share)>, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let cursor = cursor(request)?;
    let share = state.room.stream(&caller, user.as_ref())?;
    let runs = &state.edge.runs;
    let watch = runs.watch(&caller, user.as_ref(), id(request)?, cursor).await?;
    Ok((!watch.is_reported().await?).then_some((watch, share)))
}

/// `Last-Event-ID`, or `after` for clients that cannot set headers.
fn cursor(request: &HttpRequest) -> Result<Cursor, Error> {
    let mut after = None;
    for (name, value) in url::form_urlencoded::parse(request.query_string().as_bytes()) {
        if name != "after" {
            return Err(query::invalid(
                &name,
                "is not a known parameter; allowed is after".to_owned(),
            ));
        }
        let cursor = Cursor::parse(&value);
        after = Some(cursor.ok_or_else(|| query::no_such(&name, &value, "the id of an event, such as 12 or 12.5"))?);
    }
    if !request.headers().contains_key(&LAST_EVENT_ID) {
        return Ok(after.unwrap_or_default());
    }
    let value = only(request.headers(), &LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    value.and_then(Cursor::parse).ok_or(Error::InvalidHeader(
        "Last-Event-ID",
        "must be the id of an event, such as 12 or 12.5",
    ))
}

fn begin(state: &Data<State>, exchange: Exchange, watch: Watch, share: Share, form: Form) -> HttpResponse {
    let mut heartbeat = tokio::time::interval(state.edge.limits.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let mut response = HttpResponse::build(StatusCode::OK);
    response.insert_header((header::CONTENT_TYPE, form.content_type()));
    // A buffering proxy would delay the lines.
    response.insert_header((ACCEL_BUFFERING, HeaderValue::from_static("no")));
    response.insert_header((headers::REQUEST_ID, exchange.id.header.clone()));
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    let telling = Telling {
        state: Data::clone(state),
        exchange,
        form,
        watch: Some(watch),
        heartbeat,
        _share: share,
    };
    response.streaming(stream::unfold(telling, Telling::next))
}

/// A stream in progress. If dropped before its last line, it counts as a client that left.
struct Telling {
    state: Data<State>,
    exchange: Exchange,
    form: Form,
    /// Absent after the last line was sent.
    watch: Option<Watch>,
    heartbeat: Interval,
    _share: Share,
}

/// A line: the event, and its id for NDJSON readers.
#[derive(Serialize, ToSchema)]
struct Line<'a> {
    /// The position of this event in the stream.
    id: &'a str,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl Telling {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let mut watch = self.watch.take()?;
        let mut out = BytesMut::new();
        tokio::select! {
            event = watch.next() => match event {
                Ok(Some(event)) => {
                    self.write(&event, &mut out);
                    self.watch = Some(watch);
                }
                Ok(None) => {
                    self.exchange.answered(StatusCode::OK);
                    return None;
                }
                Err(error) => self.fail(error, &mut out),
            },
            _ = self.heartbeat.tick() => {
                self.form.heartbeat(&mut out);
                // A stopping server does not wait for a run that may continue for hours in another process.
                if self.state.edge.surroundings.stopping() {
                    self.exchange.answered(StatusCode::OK);
                } else {
                    self.watch = Some(watch);
                }
            }
        }
        self.heartbeat.reset();
        Some((Ok(out.freeze()), self))
    }

    fn write(&self, event: &PlacedEvent, out: &mut BytesMut) {
        let id = event.cursor.to_string();
        let line = Line {
            id: &id,
            event: &event.event,
        };
        self.form.object(&id, &line, out);
    }

    fn fail(&mut self, error: RunError, out: &mut BytesMut) {
        let problem = self.exchange.problem(error);
        self.form.problem(&problem, out);
        self.exchange.answered(StatusCode::OK);
    }
}
