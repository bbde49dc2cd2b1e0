//! Threads: send a message, read, cancel.

use std::ops::ControlFlow;
use std::slice;
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::Data;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::events::Event;
use crate::api::threads::{RunAnswer, SayBody, Thread, ThreadPage};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{RunId, ThreadId, UserId};
use crate::http::State;
use crate::http::answer::{Json, Reply, Started, used};
use crate::http::caller::Auth;
use crate::http::error::{AgentProblem, Code, Error};
use crate::http::headers::Patience;
use crate::http::openapi::lines::{Union, line as union};
use crate::http::openapi::{About, in_query, whole};
use crate::http::query::{self, Fields, Parameters};
use crate::http::request::{Acting, Ctx, Given, Id, Key, List, Meta, Query, Request, Room, Sent, Take, User};
use crate::http::routes::operations;
use crate::http::runs::{AgentRunLine, RunLines, watch};
use crate::http::stream::{After, Framing, Lines, Out, Silent, Stream};
use crate::surfaces::caller::Caller;
use crate::surfaces::problem::Problem as Cause;
use crate::surfaces::runs::Watch;

operations! {
    say = run, sayStreaming = run_streamed:
        [Forbidden, NotFound, ThreadBusy, InvalidDefinition, RateLimited, OutcomeUnrecorded, RunUnreadable,
         AgentUnavailable];
    listThreads = list: [];
    getThread = thread: [];
    getThreadRun = get: [];
    watchThreadRun = follow: [];
    cancelThreadRun = cancel: [Forbidden, OutcomeUnrecorded, RunUnreadable];
}

impl Given for SayBody {
    const ABOUT: &'static str = "The message.";
    const EXAMPLE: &'static str = r#"{"prompt": "E-mail Ann that I am late."}"#;
}

/// Sends a message to a thread.
///
/// Waits until the run has ended or waits for approval. Each side effect requires approval, unless a grant or the
/// operator's policy allows it. While a run of the thread is in progress, another message is rejected with 409
/// `thread_busy` and that run's id, or waits its turn (`runs.while_busy`).
#[utoipa::path(
    post,
    path = "/api/agent/run",
    responses(
        (status = 200, description = "The run, which has ended or waits for approval."),
        (status = 202, description = "The run, which is still in progress; `Location` names it."),
    )
)]
pub(super) async fn run(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<SayBody>,
    User(user): User,
    Meta(meta): Meta,
) -> Result<Started<RunAnswer>, Error> {
    let (threads, meta) = (&ctx.threads, meta.background(patience == Patience::None));
    let mut begun = threads.say(&ctx.caller, user, given, meta).await?;
    let id = begun.run;
    let run = patience.wait_or(
        threads.wait(&ctx.caller, &mut begun),
        threads.run(&ctx.caller, None, id),
    );
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.await.map_err(|error| ctx.runs.unreadable(id, error))?;
    Ok(Started::new(reply(run), Some(&begun), patience))
}

/// Reads a run of a thread.
///
/// `status` has the values of the specification; `state` gives the exact state where these have none for it.
#[utoipa::path(get, path = "/api/agent/runs/{id}")]
pub(super) async fn get(ctx: Ctx, Acting(user): Acting, Id(id): Id<RunId>) -> Result<Json<RunAnswer>, Error> {
    Ok(Json(ctx.threads.run(&ctx.caller, user.as_ref(), id).await?))
}

/// Cancels a run.
///
/// Actions that wait for approval are not executed. A run that has ended remains unchanged.
#[utoipa::path(
    post,
    path = "/api/agent/runs/{id}/cancel",
    responses(
        (
            status = 200,
            description = "The run, which has ended or waits for approval.",
            headers(("Location"))
        ),
        (
            status = 202,
            description = "The run, which is still in progress; `Location` names it.",
            headers(("Location"), ("Retry-After"))
        ),
    )
)]
pub(super) async fn cancel(
    ctx: Ctx,
    Acting(user): Acting,
    Key(key): Key,
    Id(id): Id<RunId>,
) -> Result<Reply<RunAnswer>, Error> {
    let run = ctx.threads.cancel(&ctx.caller, user.as_ref(), id, key.as_ref());
    Ok(reply(run.await?).later())
}

/// Lists your threads.
///
/// The latest active first; only your own, whatever your role. A thread that receives a message while you page through
/// the list moves to the front.
#[utoipa::path(get, path = "/api/agent/threads")]
pub(super) async fn list(
    ctx: Ctx,
    List(query, _): List<ThreadPage>,
    Owner(user): Owner,
) -> Result<Json<ThreadPage>, Error> {
    Ok(Json(ctx.threads.list(&ctx.caller, user, query).await?.into()))
}

/// The user whose threads are listed; `None` lists every user's, which no role allows: only the command line may, on its
/// own database.
pub(super) struct Owner(Option<UserId>);

impl Take for Owner {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        if let Auth::OneCommand(_) = request.state.edge.auth {
            let Acting(user) = Acting::take(request).await?;
            return Ok(Self(user));
        }
        let User(user) = User::take(request).await?;
        Ok(Self(Some(user)))
    }

    fn describe(about: &mut About<'_>) {
        Acting::describe(about);
    }
}

/// The part of a thread that is read: the messages before this number.
pub(super) struct Before(Option<u64>);

impl Parameters for Before {
    fn read(fields: &mut Fields<'_>) -> Self {
        let about = || in_query("Messages before this number.", whole(0));
        Self(fields.take("before", about, "the number of a message, such as 12", query::number))
    }
}

/// Reads a thread.
///
/// With its latest 200 messages, or those before `before`. A thread of another user answers 404, like a missing one.
#[utoipa::path(get, path = "/api/agent/threads/{id}")]
pub(super) async fn thread(
    ctx: Ctx,
    Query(Before(before)): Query<Before>,
    Acting(user): Acting,
    Id(id): Id<ThreadId>,
) -> Result<Json<Thread>, Error> {
    Ok(Json(ctx.threads.thread(&ctx.caller, user.as_ref(), id, before).await?))
}

/// 200 for a run that has ended or waits for approval, else 202.
fn reply(run: RunAnswer) -> Reply<RunAnswer> {
    let rests = ["completed", "failed", "awaiting_confirmation"].contains(&&*run.status);
    let path = path(run.run_id);
    Reply::current(rests, run).at(path)
}

fn path(run: RunId) -> String {
    format!("/api/agent/runs/{run}")
}

union! {
    /// A line of a thread run's stream.
    ThreadLine = Union::default().and::<Line<'_>>("Thread").and::<Silent>("")
}

/// A line of the stream.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    /// The first line.
    #[serde(rename_all = "camelCase")]
    Status {
        /// `planning` or `queued`, or the state of a run that already existed.
        status: &'a str,
        /// The thread.
        #[schema(value_type = String, format = "uuid")]
        thread_id: Option<ThreadId>,
        /// The run.
        #[schema(value_type = String, format = "uuid")]
        run_id: RunId,
    },
    /// More text of the model.
    Delta {
        /// The text.
        delta: &'a str,
    },
    /// The text of this turn so far is void.
    Reset,
    /// The last line.
    Result {
        /// The run.
        result: Box<RunAnswer>,
    },
    /// The last line of a run that cannot be read. It has the fields of the problem that another route would return,
    /// except `type`.
    #[expect(dead_code, reason = "`failed` makes this line of a problem that is already text")]
    Error {
        /// What happened, as text.
        error: String,
        #[serde(flatten)]
        problem: AgentProblem<'a>,
    },
}

/// Sends a message and streams the answer.
///
/// NDJSON: first `status` with the thread, then `delta`s with the model's text (`reset` discards those of the current
/// turn), last `result` with the run, or `error`. A client that disconnects cancels nothing and can watch the run's
/// events.
#[utoipa::path(
    post,
    path = "/api/agent/run/stream",
    responses((
        status = 200,
        description = "Lines.",
        content((ThreadLine = "application/x-ndjson")),
        headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Location"))
    ))
)]
pub(super) async fn run_streamed(
    ctx: Ctx,
    Sent(given): Sent<SayBody>,
    User(user): User,
    Room(share): Room,
    Meta(meta): Meta,
) -> Result<Stream<ThreadLines>, Error> {
    let begun = match (ctx.threads.say(&ctx.caller, user, given, meta).await, &share) {
        (Err(problem), Err(exceeded)) if problem.code == Code::Overloaded => return Err((*exceeded).into()),
        (begun, _) => begun?,
    };
    let (threads, run) = (&ctx.threads, begun.run);
    let read = async {
        let answer = threads.run(&ctx.caller, None, run).await?;
        let watch = ctx.runs.watch(&ctx.caller, None, run, 0).await?;
        Ok::<_, Cause>((answer, watch))
    };
    // The run exists and may have had effects: if it cannot be streamed now, the request must not be sent again.
    let (answer, watch) = read.await.map_err(|error| ctx.runs.unreadable(run, error))?;
    let status = match begun.waits_its_turn {
        true => "queued",
        false if begun.replayed => &*answer.status,
        false => "planning",
    };
    let first = Line::Status {
        status,
        thread_id: answer.thread_id,
        run_id: run,
    };
    let lines = ThreadLines {
        state: Data::clone(&ctx.state),
        caller: ctx.caller.clone(),
        run,
        watch,
        sent: 0,
        ending: Ending::No,
        pauses: PAUSES.iter(),
    };
    let mut stream = Stream::new(Framing::Ndjson, Some(share?), lines);
    Framing::Ndjson.object(None::<u64>, &first, &mut stream.first);
    stream.head.insert_header((header::LOCATION, path(run)));
    for header in used(&begun) {
        stream.head.insert_header(header);
    }
    Ok(stream)
}

/// Pauses before an ended run is read again, if the record store was unavailable.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Has the run said its last?
#[derive(Clone, Copy)]
enum Ending {
    No,
    /// It waits for an approval, which may have been resolved since, for example when a request is repeated.
    IfItWaits,
    Yes,
}

/// The text of a run, and its answer. The specification closes the list of line types, so the model's thoughts are not
/// sent here; they are among the run's events.
pub(crate) struct ThreadLines {
    state: Data<State>,
    caller: Caller,
    run: RunId,
    watch: Watch,
    /// Bytes of this turn's text that were already sent as deltas.
    sent: usize,
    ending: Ending,
    pauses: slice::Iter<'static, Duration>,
}

impl Lines for ThreadLines {
    const RESUMABLE: bool = false;
    type Line = ThreadLine;

    async fn next(&mut self, out: &mut Out<'_>) -> Result<ControlFlow<()>, Error> {
        match self.ending {
            Ending::No => match self.watch.next().await {
                Ok(Some(sent)) if sent.event.run_id == self.run => self.tell(sent.event.what, out),
                Ok(Some(_)) => {}
                // The service stops; the run continues in another process.
                Ok(None) => self.ending = Ending::Yes,
                Err(error) => {
                    self.fail(error, out);
                    return Ok(ControlFlow::Break(()));
                }
            },
            Ending::IfItWaits => {
                let run = self.state.edge.threads.run(&self.caller, None, self.run).await;
                // If it cannot be read, the end reports the error.
                let waits = run.map_or(true, |run| run.status == RunStatus::AwaitingConfirmation.as_str());
                self.ending = if waits { Ending::Yes } else { Ending::No };
            }
            Ending::Yes => return Ok(self.end(out).await),
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl ThreadLines {
    fn tell(&mut self, event: Event, out: &mut Out<'_>) {
        match event {
            Event::Delta { text } => {
                self.sent += text.len();
                line(&Line::Delta { delta: &text }, out);
            }
            // The turn failed, and the next text is another turn. If only thoughts arrived, none of them was sent here.
            Event::Reset | Event::ModelFault { .. } if self.sent > 0 => {
                self.sent = 0;
                line(&Line::Reset, out);
            }
            // A reader that joined late or fell behind gets the missing text. The turn begins with the text already
            // sent.
            Event::Turn { text, .. } => {
                let sent = std::mem::take(&mut self.sent);
                let missing = text.get(sent..).unwrap_or_default();
                if !missing.is_empty() {
                    line(&Line::Delta { delta: missing }, out);
                }
            }
            Event::AwaitingConfirmation => self.ending = Ending::IfItWaits,
            Event::End { .. } => self.ending = Ending::Yes,
            _ => {}
        }
    }

    async fn end(&mut self, out: &mut Out<'_>) -> ControlFlow<()> {
        // Text of an incomplete turn is invalid.
        if std::mem::take(&mut self.sent) > 0 {
            line(&Line::Reset, out);
        }
        match self.state.edge.threads.run(&self.caller, None, self.run).await {
            Ok(answer) => {
                let result = Box::new(answer);
                line(&Line::Result { result }, out);
            }
            Err(error) => {
                // A short unavailability of the database must not end a stream that was complete until here.
                if error.code == Code::RecordUnavailable
                    && let Some(pause) = self.pauses.next()
                {
                    tokio::time::sleep(*pause).await;
                    return ControlFlow::Continue(());
                }
                self.fail(error, out);
            }
        }
        ControlFlow::Break(())
    }

    /// The run exists and may have had effects: if it cannot be streamed now, the request must not be sent again.
    fn fail(&mut self, error: Cause, out: &mut Out<'_>) {
        let error = self.state.edge.runs.unreadable(self.run, error);
        let problem: Map<String, Value> = serde_json::from_str(&out.exchange.problem(error)).unwrap_or_default();
        line(&failed(problem), out);
    }
}

fn line(line: &impl Serialize, out: &mut Out<'_>) {
    out.form.object(None::<u64>, line, out.bytes);
}

/// The last line of a run that cannot be read: the error text, and the fields of the problem.
fn failed(mut problem: Map<String, Value>) -> Value {
    let detail = problem
        .get("detail")
        .cloned()
        .unwrap_or_else(|| "the run cannot be read".into());
    problem.insert("type".to_owned(), "error".into());
    problem.insert("error".to_owned(), detail);
    Value::Object(problem)
}

/// Watches the events of a run.
///
/// As `GET /api/runs/{id}/events`.
#[utoipa::path(get, path = "/api/agent/runs/{id}/events")]
pub(super) async fn follow(
    ctx: Ctx,
    Acting(user): Acting,
    after: After<u64>,
    Room(room): Room,
    Id(run): Id<RunId>,
    form: Framing,
) -> Result<Option<Stream<RunLines<AgentRunLine>>>, Error> {
    watch(ctx, user, after, room, run, form).await
}

#[cfg(test)]
mod stream_tests {
    use serde_json::json;

    use super::*;

    /// R, Routes: `error` is a string.
    #[test]
    fn the_last_line_of_a_stream_that_fails_has_words_and_the_problem_beside_them() {
        let problem = json!({"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "Later.", "code": "run_unreadable"});
        let Value::Object(problem) = problem else {
            unreachable!()
        };
        let sent = json!({"type": "error", "error": "Later.", "title": "Service Unavailable", "status": 503, "detail": "Later.", "code": "run_unreadable"});
        assert_eq!(failed(problem), sent);
    }
}
