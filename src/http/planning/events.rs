//! `GET /v1/sessions/{id}/events`: the events of a session, from its beginning or after `Last-Event-ID`, as NDJSON or
//! server-sent events. A reader that disconnects changes nothing, and can reconnect to any replica.

use crate::http::request::Raw;
use std::ops::ControlFlow;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use actix_web::{HttpRequest, HttpResponse};
use bytes::BytesMut;
use serde::Serialize;
use utoipa::ToSchema;

use super::{SessionPath, id};
use crate::domain::budget::Share;
use crate::http::error::{Code, Error};
use crate::http::headers::only;
use crate::http::lines::{AgentFailed, Form, Silent};
use crate::http::openapi::lines::{Union, line};
use crate::http::openapi::params::{ActingUser, AfterEvent, LastEvent};
use crate::http::stream::{self, Lines, Out};
use crate::http::{State, acting, query};
use crate::surfaces::planning::{EventId, SessionEvent, SessionWatch, Watched};

line! {
    /// A line of a planning session's events: an event, or the problem that ends the stream.
    PlanningLine = Union::default().and::<Line<'_>>("Planning").and::<AgentFailed>("Agent").and::<Silent>("")
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const LAST_EVENT: &str = "Last-Event-ID";
const UNKNOWN: &str = "is not the id of an event of this session";

/// Watches the events of a planning session.
///
/// From its first event, or from the one after `Last-Event-ID`, until the session has ended: the runs that planned, the
/// edits, and the work on the confirmed plan, in this order. While the session waits for its confirmation, the stream
/// remains open. The last event is `result`; a later request gets 204. An id is `RUN.POSITION.PART`: the same event has
/// the same id at every replica, and ids only grow. Text that arrives (`delta`, and `reset` beside it) is sent by the
/// replica that does the work, is not stored, and has the id of the event before it.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/events",
    operation_id = "watchPlanningSession",
    tag = "planning sessions",
    params(SessionPath, ActingUser, LastEvent, AfterEvent),
    responses(
        (
            status = 200,
            description = "One event per line. With `Accept: text/event-stream` each is an SSE message.",
            content((PlanningLine = "application/x-ndjson"), (PlanningLine = "text/event-stream"))
        ),
        (status = 204, description = "You have received the last event already."),
    ),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound, Code::Overloaded])))
)]
pub(in crate::http) async fn follow(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    match watch(&state, &request).await {
        Ok(Some((watch, share))) => {
            let form = Form::asked_for(request.headers());
            let head = stream::head(StatusCode::OK, form);
            let lines = SessionLines(watch);
            stream::respond(head, &state, exchange, form, Some(share), BytesMut::new(), lines)
        }
        // An EventSource treats an empty 200 as a broken stream and reconnects forever; 204 ends it.
        Ok(None) => exchange.finish(Ok(HttpResponse::NoContent().finish())),
        Err(error) => exchange.finish(Err(error)),
    }
}

/// `None` for a reader that has received the last event.
async fn watch(state: &State, request: &HttpRequest) -> Result<Option<(Box<SessionWatch>, Share)>, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let (after, is_header) = after(request)?;
    let share = state.room.stream(&caller, user.as_ref())?;
    let session = id(request)?;
    let watched = state.edge.planning.watch(&caller, user.as_ref(), session, after);
    match watched.await? {
        Watched::Events(watch) => Ok(Some((watch, share))),
        Watched::Reported => Ok(None),
        Watched::UnknownEvent if is_header => Err(Error::InvalidHeader(LAST_EVENT, UNKNOWN)),
        Watched::UnknownEvent => Err(query::invalid("after", UNKNOWN.to_owned())),
    }
}

/// `Last-Event-ID`, or `after` for clients that cannot set headers; and whether it is the header.
fn after(request: &HttpRequest) -> Result<(Option<EventId>, bool), Error> {
    let mut after = None;
    for (name, value) in url::form_urlencoded::parse(request.query_string().as_bytes()) {
        if name != "after" {
            return Err(query::invalid(
                &name,
                "is not a known parameter; allowed is after".to_owned(),
            ));
        }
        let allowed = "the id of an event, such as 2.17.0";
        after = Some(EventId::parse(&value).ok_or_else(|| query::no_such(&name, &value, allowed))?);
    }
    if !request.headers().contains_key(&LAST_EVENT_ID) {
        return Ok((after, false));
    }
    let value = only(request.headers(), &LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let id = value.and_then(EventId::parse).ok_or(Error::InvalidHeader(
        LAST_EVENT,
        "must be the id of an event, such as 2.17.0",
    ))?;
    Ok((Some(id), true))
}

/// The events of a session.
struct SessionLines(Box<SessionWatch>);

/// A line: the event, its id for NDJSON readers, and its time.
#[derive(Serialize, ToSchema)]
struct Line<'a> {
    /// The place of this event in the stream.
    #[schema(example = "2.17.0")]
    id: &'a str,
    /// When it was recorded; absent from what is not stored, and from what follows from other events alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    at: Option<&'a str>,
    #[serde(flatten)]
    event: &'a SessionEvent,
}

impl Lines for SessionLines {
    const RESUMABLE: bool = true;

    async fn next(&mut self, out: &mut Out<'_>) -> ControlFlow<()> {
        match self.0.next().await {
            Ok(Some(line)) => {
                let id = line.id.to_string();
                let line = Line {
                    id: &id,
                    at: line.at.as_deref(),
                    event: &line.event,
                };
                out.form.object(&id, &line, out.bytes);
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
