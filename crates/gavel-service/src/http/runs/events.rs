//! `GET /api/runs/{id}/events`: the events of a run, from its beginning or after `Last-Event-ID`, as NDJSON or
//! server-sent events. A reader that disconnects changes nothing, and can reconnect to any replica.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::events::RunEvent;
use crate::domain::ids::RunId;
use crate::http::about::About;
use crate::http::error::{AgentProblem, Error, Problem};
use crate::http::lines::{Failed, Framing, Silent};
use crate::http::openapi::lines::{Union, line};
use crate::http::request::{Acting, Ctx, Id, Request, Room, Take};
use crate::http::spelling::{self, Spelling};
use crate::http::stream::{After, Lines, Out, Stream};
use crate::surfaces::runs::Watch;

line! {
    /// A line of a run's events: an event, or the problem that ends the stream.
    RunLine = Union::default().and::<Line<'_>>("Run").and::<Failed<Problem<'_>>>("").and::<Silent>("")
}

line! {
    /// A line of the events of a run of a thread, in camelCase.
    AgentRunLine = Union::default().and_camel::<Line<'_>>("ThreadRun").and::<Failed<AgentProblem<'_>>>("Agent").and::<Silent>("")
}

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
    responses(
        (status = 200, description = "One event per line. With `Accept: text/event-stream` each is an SSE message."),
        (status = 204, description = "You have received the last event already."),
    )
)]
pub(crate) async fn follow(reader: Reader) -> Result<Option<Stream<RunLines<RunLine>>>, Error> {
    reader.watch(Spelling::Snake).await
}

/// Watches the events of a run.
///
/// As `GET /api/runs/{id}/events`.
#[utoipa::path(
    get,
    path = "/api/agent/runs/{id}/events",
    operation_id = "watchThreadRun",
    tag = "threads",
    responses(
        (status = 200, description = "One event per line. With `Accept: text/event-stream` each is an SSE message."),
        (status = 204, description = "You have received the last event already."),
    )
)]
pub(crate) async fn follow_in_thread(reader: Reader) -> Result<Option<Stream<RunLines<AgentRunLine>>>, Error> {
    reader.watch(Spelling::Camel).await
}

/// A reader of the events of a run.
pub(crate) struct Reader {
    ctx: Ctx,
    user: Acting,
    after: After<u64>,
    room: Room,
    run: Id<RunId>,
    form: Framing,
}

impl Take for Reader {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Ok(Self {
            ctx: Ctx::take(request).await?,
            user: Acting::take(request).await?,
            after: After::take(request).await?,
            room: Room::take(request).await?,
            run: <Id<RunId> as Take>::take(request).await?,
            form: Framing::take(request).await?,
        })
    }

    fn describe(about: &mut About<'_>) {
        Ctx::describe(about);
        Acting::describe(about);
        After::<u64>::describe(about);
        Room::describe(about);
        <Id<RunId> as Take>::describe(about);
    }
}

impl Reader {
    async fn watch<L>(self, spelling: Spelling) -> Result<Option<Stream<RunLines<L>>>, Error> {
        let Self {
            ctx,
            user: Acting(user),
            room: Room(share),
            run: Id(run),
            ..
        } = self;
        let (share, after) = (share?, self.after.place.unwrap_or_default());
        let watch = ctx.runs.watch(&ctx.caller, user.as_ref(), run, after).await?;
        if watch.is_reported().await? {
            return Ok(None);
        }
        let lines = RunLines {
            watch,
            spelling,
            line: PhantomData,
        };
        Ok(Some(Stream::new(self.form, share, lines)))
    }
}

/// The events of a run as lines of this type, which are spelled as their route is.
pub(crate) struct RunLines<L> {
    watch: Watch,
    spelling: Spelling,
    line: PhantomData<L>,
}

/// A line: the event, and its id for NDJSON readers.
#[derive(Serialize, ToSchema)]
struct Line<'a> {
    /// The position of this event in the stream.
    id: &'a str,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl<L: ToSchema> Lines for RunLines<L> {
    const RESUMABLE: bool = true;
    type Line = L;

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
