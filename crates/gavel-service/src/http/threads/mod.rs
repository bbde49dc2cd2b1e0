//! Threads: send a message, read, cancel.

mod error;
pub(super) mod stream;

use serde_json::{Value, json};
use utoipa::IntoParams;

use super::about::About;
use super::answer::{Json, Reply, Started};
use super::caller::Auth;
use super::error::{Code, Error};
use super::patience::Patience;
use super::query::{self, Fields, Parameters};
use super::request::{Acting, Ctx, Given, Id, Key, List, Meta, Query, Request, Sent, Take, User};
use super::runs::time_zone;
use crate::api::threads::{RunAnswer, SayBody, Thread, ThreadPage};
use crate::domain::ids::{RunId, ThreadId, UserId};
use crate::surfaces::request::RequestMeta;
use crate::surfaces::threads::Message;

impl Given for SayBody {
    const FORM: &'static str = "{\"prompt\", \"threadId\"?, \"timeZone\"?}";
    const ABOUT: &'static str = "The message.";

    fn example() -> Value {
        json!({"prompt": "E-mail Ann that I am late."})
    }
}

fn message(given: SayBody, background: bool, meta: RequestMeta) -> Result<Message, Error> {
    Ok(Message {
        prompt: given.prompt,
        thread: given.thread_id,
        time_zone: given.time_zone.map(|name| time_zone(&name, "/timeZone")).transpose()?,
        background,
        meta,
    })
}

/// Problems of a message, beside those that follow from its parameters.
const PROBLEMS: [Code; 8] = [
    Code::Forbidden,
    Code::NotFound,
    Code::ThreadBusy,
    Code::InvalidDefinition,
    Code::RateLimited,
    Code::OutcomeUnrecorded,
    Code::RunUnreadable,
    Code::AgentUnavailable,
];

/// Sends a message to a thread.
///
/// Waits until the run has ended or waits for approval. Each side effect requires approval, unless a grant or the
/// operator's policy allows it. While a run of the thread is in progress, another message is rejected with 409
/// `thread_busy` and that run's id, or waits its turn (`runs.while_busy`).
#[utoipa::path(
    post,
    path = "/api/agent/run",
    operation_id = "say",
    tag = "threads",
    responses(
        (status = 200, description = "The run, which has ended or waits for approval."),
        (status = 202, description = "The run, which is still in progress; `Location` names it."),
    ),
    extensions(("x-problems" = json!(PROBLEMS)))
)]
pub(super) async fn run(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<SayBody>,
    User(user): User,
    Meta(meta): Meta,
) -> Result<Started<RunAnswer>, Error> {
    let message = message(given, patience == Patience::None, meta)?;
    let keyed = message.meta.idempotency.is_some();
    let threads = &ctx.threads;
    let mut begun = threads.say(&ctx.caller, user, message).await?;
    let id = begun.run;
    let run = patience.wait_or(
        threads.wait(&ctx.caller, &mut begun),
        threads.run(&ctx.caller, None, id),
    );
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.await.map_err(|error| ctx.runs.unreadable(id, error))?;
    Ok(Started::new(reply(run), Some(&begun), keyed))
}

/// Reads a run of a thread.
///
/// `status` has the values of the specification; `state` gives the exact state where these have none for it.
#[utoipa::path(get, path = "/api/agent/runs/{id}", operation_id = "getThreadRun", tag = "threads")]
pub(super) async fn get(ctx: Ctx, Acting(user): Acting, Id(id): Id<RunId>) -> Result<Json<RunAnswer>, Error> {
    Ok(Json(ctx.threads.run(&ctx.caller, user.as_ref(), id).await?))
}

/// Cancels a run.
///
/// Actions that wait for approval are not executed. A run that has ended remains unchanged.
#[utoipa::path(
    post,
    path = "/api/agent/runs/{id}/cancel",
    operation_id = "cancelThreadRun",
    tag = "threads",
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
    ),
    extensions(("x-problems" = json!([Code::Forbidden, Code::OutcomeUnrecorded, Code::RunUnreadable])))
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
#[utoipa::path(get, path = "/api/agent/threads", operation_id = "listThreads", tag = "threads")]
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

/// The part of a thread that is read.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// Messages before this number.
    before: Option<u64>,
}

impl Parameters for Part {
    fn read(fields: &mut Fields<'_>) -> Self {
        let before = fields.take("before", "the number of a message, such as 12", query::number);
        Self { before }
    }
}

/// Reads a thread.
///
/// With its latest 200 messages, or those before `before`. A thread of another user answers 404, like a missing one.
#[utoipa::path(get, path = "/api/agent/threads/{id}", operation_id = "getThread", tag = "threads")]
pub(super) async fn thread(
    ctx: Ctx,
    Query(Part { before }): Query<Part>,
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
