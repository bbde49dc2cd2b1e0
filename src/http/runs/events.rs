//! `GET /api/runs/{id}/events`: the events of a run, from its beginning or after `Last-Event-ID`, as NDJSON or
//! server-sent events. A reader that disconnects changes nothing, and can reconnect to any replica.

use crate::http::request::Raw;
use std::ops::ControlFlow;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use actix_web::{HttpRequest, HttpResponse};
use bytes::BytesMut;
use serde::Serialize;
use utoipa::ToSchema;

use super::id;
use crate::domain::budget::Share;
use crate::domain::ids::{RunId, UserId};
use crate::http::error::{Code, Error};
use crate::http::headers::only;
use crate::http::lines::{AgentFailed, Failed, Form, Silent};
use crate::http::openapi::lines::{Union, line};
use crate::http::openapi::params::{ActingUser, AfterEvent, LastEvent, RunPath};
use crate::http::spelling::{self, Spelling};
use crate::http::stream::{self, Lines, Out};
use crate::http::{State, acting, query};
use crate::surfaces::caller::Caller;
use crate::surfaces::runs::{RunEvent, Watch};

line! {
    /// A line of a run's events: an event, or the problem that ends the stream.
    RunLine = Union::default().and::<Line<'_>>("Run").and::<Failed>("").and::<Silent>("")
}

line! {
    /// A line of the events of a run of a thread, in camelCase.
    AgentRunLine = Union::default().and_camel::<Line<'_>>("ThreadRun").and::<AgentFailed>("Agent").and::<Silent>("")
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Watches the events of a run.
///
/// From the first event, or from the one after `Last-Event-ID`, until the run ends. The last event is `end`; a later
/// request gets 204. Events of the runs that it called are among them, in the order in which they happened, under their
/// own `run_id`. The replica that executes the run also sends partial text (`delta`); all replicas send the whole text
/// in `turn`.
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
pub(in crate::http) async fn follow(raw: Raw) -> HttpResponse {
    respond(raw, run_of_path).await
}

/// Responds with the events of the run that `find` returns for the request, its caller and its acting user.
pub(in crate::http) async fn respond(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
    find: impl AsyncFnOnce(&State, &HttpRequest, &Caller, Option<&UserId>) -> Result<RunId, Error>,
) -> HttpResponse {
    match watch(&state, &request, find).await {
        Ok(Some((watch, share))) => {
            let form = Form::asked_for(request.headers());
            let lines = RunLines {
                watch,
                spelling: Spelling::of(exchange.route),
            };
            let head = stream::head(StatusCode::OK, form);
            stream::respond(head, &state, exchange, form, Some(share), BytesMut::new(), lines)
        }
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
pub(in crate::http) async fn tell_of_thread(raw: Raw) -> HttpResponse {
    respond(raw, run_of_path).await
}

/// `None` for a reader that has received the last event.
async fn watch(
    state: &State,
    request: &HttpRequest,
    find: impl AsyncFnOnce(&State, &HttpRequest, &Caller, Option<&UserId>) -> Result<RunId, Error>,
) -> Result<Option<(Watch, Share)>, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let after = after(request)?;
    let share = state.room.stream(&caller, user.as_ref())?;
    let run = find(state, request, &caller, user.as_ref()).await?;
    let watch = state.edge.runs.watch(&caller, user.as_ref(), run, after).await?;
    Ok((!watch.is_reported().await?).then_some((watch, share)))
}

async fn run_of_path(_: &State, request: &HttpRequest, _: &Caller, _: Option<&UserId>) -> Result<RunId, Error> {
    id(request)
}

/// `Last-Event-ID`, or `after` for clients that cannot set headers.
fn after(request: &HttpRequest) -> Result<u64, Error> {
    let mut after = None;
    for (name, value) in url::form_urlencoded::parse(request.query_string().as_bytes()) {
        if name != "after" {
            return Err(query::invalid(
                &name,
                "is not a known parameter; allowed is after".to_owned(),
            ));
        }
        after = Some(number(&value).ok_or_else(|| query::no_such(&name, &value, "the id of an event, such as 12"))?);
    }
    if !request.headers().contains_key(&LAST_EVENT_ID) {
        return Ok(after.unwrap_or_default());
    }
    let value = only(request.headers(), &LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    value.and_then(number).ok_or(Error::InvalidHeader(
        "Last-Event-ID",
        "must be the id of an event, such as 12",
    ))
}

/// Digits only: the parser would accept a sign.
fn number(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// The events of a run, in the spelling of the route.
struct RunLines {
    watch: Watch,
    spelling: Spelling,
}

/// A line: the event, and its id for NDJSON readers.
#[derive(Serialize, ToSchema)]
struct Line<'a> {
    /// The position of this event in the stream.
    id: &'a str,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl Lines for RunLines {
    const RESUMABLE: bool = true;

    async fn next(&mut self, out: &mut Out<'_>) -> ControlFlow<()> {
        match self.watch.next().await {
            Ok(Some(placed)) => {
                let id = placed.number.to_string();
                let line = Line {
                    id: &id,
                    event: &placed.event,
                };
                match self.spelling {
                    Spelling::Snake => out.form.object(&id, &line, out.bytes),
                    Spelling::Camel => out.form.object(&id, &spelling::camel(&line), out.bytes),
                }
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Break(()),
            Err(error) => {
                out.form.problem(&out.exchange.problem(error), out.bytes);
                ControlFlow::Break(())
            }
        }
    }
}
