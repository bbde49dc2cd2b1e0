//! `GET /v1/sessions/{id}/events`: the events of a session, from its beginning or after `Last-Event-ID`, as NDJSON or
//! server-sent events. A reader that disconnects changes nothing, and can reconnect to any replica.

use std::ops::ControlFlow;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::planning::SessionEvent;
use crate::domain::ids::PlanningSessionId;
use crate::http::error::{AgentProblem, Error};
use crate::http::lines::{Failed, Framing, Silent};
use crate::http::openapi::lines::{Union, line};
use crate::http::request::{Acting, Ctx, Id, Room};
use crate::http::stream::{After, Lines, Out, Place, Stream};
use crate::surfaces::planning::{EventId, SessionWatch, Watched};

line! {
    /// A line of a planning session's events: an event, or the problem that ends the stream.
    PlanningLine = Union::default().and::<Line<'_>>("Planning").and::<Failed<AgentProblem<'_>>>("Agent").and::<Silent>("")
}

impl Place for EventId {
    const EXAMPLE: &'static str = "2.17.0";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

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
    responses(
        (status = 200, description = "One event per line. With `Accept: text/event-stream` each is an SSE message."),
        (status = 204, description = "You have received the last event already."),
    )
)]
pub(crate) async fn follow(
    ctx: Ctx,
    Acting(user): Acting,
    after: After<EventId>,
    Room(share): Room,
    Id(session): Id<PlanningSessionId>,
    form: Framing,
) -> Result<Option<Stream<SessionLines>>, Error> {
    let share = share?;
    let watched = ctx.planning.watch(&ctx.caller, user.as_ref(), session, after.place);
    match watched.await? {
        Watched::Events(watch) => Ok(Some(Stream::new(form, share, SessionLines(watch)))),
        Watched::Reported => Ok(None),
        Watched::UnknownEvent => Err(after.unknown("is not the id of an event of this session")),
    }
}

/// The events of a session.
pub(crate) struct SessionLines(Box<SessionWatch>);

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
    type Line = PlanningLine;

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
