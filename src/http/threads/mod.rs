//! Threads: send a message, read, cancel.

mod error;
pub(super) mod stream;

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use tracing::Instrument;
use utoipa::ToSchema;

use super::agents::response;
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::headers;
use super::openapi::params::{self, Acting, ActingUser, CamelPaging, KeyOfAnswer, Prefer, RunPath};
use super::openapi::schemas::page;
use super::runs::{Patience, headers_of, id, key, meta, time_zone};
use super::{State, acting, body, query};
use crate::domain::budget::Share;
use crate::domain::ids::ThreadId;
use crate::domain::thread::{Thread, ThreadSummary};
use crate::http::page;
use crate::http::spelling::Spelling;
use crate::surfaces::caller::Caller;
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::{Begun, RunError};
use crate::surfaces::threads::{Message, MessageError, RunAnswer};

/// `POST /api/agent/run`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SayBody {
    /// The user's message; at most 32 KiB.
    pub prompt: String,
    /// The thread of the message; absent: a new one.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub thread_id: Option<ThreadId>,
    /// The IANA name of the user's time zone, such as `Europe/Berlin`, which gives "tomorrow at ten" its meaning.
    /// Absent: the agent learns that it is unknown.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

page! {
    /// A page of threads.
    #[serde(rename_all = "camelCase")]
    ThreadPage { threads: ThreadSummary }
}

/// Problems of a message, beside those of its credentials and its body.
const PROBLEMS: [Code; 10] = [
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::ThreadBusy,
    Code::InvalidDefinition,
    Code::IdempotencyKeyReused,
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
    params(Prefer, ActingUser, Acting),
    request_body(
        content = SayBody,
        description = "The message.",
        example = json!({"prompt": "E-mail Ann that I am late."})
    ),
    responses(
        (
            status = 200,
            description = "The run, which has ended or waits for approval.",
            body = RunAnswer,
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Location"))
        ),
        (
            status = 202,
            description = "The run, which is still in progress; `Location` names it.",
            body = RunAnswer,
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Location"), ("Retry-After"))
        ),
    ),
    extensions(("x-problems" = json!(PROBLEMS)))
)]
pub(super) async fn run(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = answered(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

/// Reads a run of a thread.
///
/// `status` has the values of the specification; `state` gives the exact state where these have none for it.
#[utoipa::path(
    get,
    path = "/api/agent/runs/{id}",
    operation_id = "getThreadRun",
    tag = "threads",
    params(RunPath, ActingUser),
    responses((status = 200, description = "The response.", body = RunAnswer)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(super) async fn get(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(one(&state, &request).await)
}

/// Cancels a run.
///
/// Actions that wait for approval are not executed. A run that has ended remains unchanged.
#[utoipa::path(
    post,
    path = "/api/agent/runs/{id}/cancel",
    operation_id = "cancelThreadRun",
    tag = "threads",
    params(RunPath, ActingUser, KeyOfAnswer),
    responses(
        (
            status = 200,
            description = "The run, which has ended or waits for approval.",
            body = RunAnswer,
            headers(("Location"))
        ),
        (
            status = 202,
            description = "The run, which is still in progress; `Location` names it.",
            body = RunAnswer,
            headers(("Location"), ("Retry-After"))
        ),
    ),
    extensions(("x-problems" = json!([
        Code::UserMismatch, Code::Forbidden, Code::NotFound, Code::OutcomeUnrecorded, Code::RunUnreadable
    ])))
)]
pub(super) async fn cancel(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(cancelled(&state, &request).await)
}

/// Lists your threads.
///
/// The latest active first; only your own, whatever your role. A thread that receives a message while you page through
/// the list moves to the front.
#[utoipa::path(
    get,
    path = "/api/agent/threads",
    operation_id = "listThreads",
    tag = "threads",
    params(
        ActingUser,
        CamelPaging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("agent_id, user_id, created_at, updated_at"),
            example = "updated_at >= \"2026-11-01T00:00:00Z\""
        ),
        ("orderBy" = Option<String>, Query, description = "`updated_at desc` (the default) or `updated_at`."),
    ),
    responses((status = 200, description = "The response.", body = ThreadPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::QueryTooSlow])))
)]
pub(super) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(all(&state, &request).await)
}

/// Reads a thread.
///
/// With its latest 200 messages, or those before `before`. A thread of another user answers 404, like a missing one.
#[utoipa::path(
    get,
    path = "/api/agent/threads/{id}",
    operation_id = "getThread",
    tag = "threads",
    params(
        ("id" = String, Path, description = "The thread's id."),
        ActingUser,
        ("before" = Option<u64>, Query, description = "Messages before this number."),
    ),
    responses((status = 200, description = "The response.", body = Thread)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(super) async fn thread(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(whole(&state, &request).await)
}

/// An accepted message, and the run it created.
struct Said {
    caller: Caller,
    begun: Begun,
    /// Whether the request has an `Idempotency-Key`.
    keyed: bool,
    patience: Patience,
    /// The share of a streamed response.
    stream: Option<Share>,
}

/// Authenticates, reads and parses the request, then checks user and idempotency; the surface checks quota and
/// admission. Room for a stream is reserved before the run is created.
async fn said(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
    streamed: bool,
) -> Result<Said, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let patience = match streamed {
        true => Patience::All,
        false => Patience::of(request.headers())?,
    };
    let body = body::read(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let given: SayBody = body::parse(&body, "{\"prompt\", \"threadId\"?, \"timeZone\"?}")?;
    let user = acting::required(state, &caller, request)?;
    let stream = streamed.then(|| state.room.stream(&caller, Some(&user))).transpose();
    let shed = stream.as_ref().err().copied();
    let meta = meta(exchange, request, &caller, &user, &body)?;
    let message = Message {
        prompt: given.prompt,
        thread: given.thread_id,
        time_zone: given.time_zone.map(|name| time_zone(&name, "/timeZone")).transpose()?,
        background: patience == Patience::None,
        meta: RequestMeta { shed, ..meta },
    };
    let keyed = message.meta.idempotency.is_some();
    let begun = match (state.edge.threads.say(&caller, user, message).await, shed) {
        (Err(MessageError::Run(RunError::Overloaded)), Some(exceeded)) => return Err(exceeded.into()),
        (begun, _) => begun?,
    };
    Ok(Said {
        caller,
        begun,
        keyed,
        patience,
        stream: stream?,
    })
}

async fn answered(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let Said {
        caller,
        mut begun,
        keyed,
        patience,
        ..
    } = said(state, exchange, request, payload, false).await?;
    let threads = &state.edge.threads;
    let run = match patience.wait(threads.wait(&caller, &mut begun)).await {
        Ok(Some(run)) => Ok(run),
        Ok(None) => threads.run(&caller, None, begun.run).await.map_err(RunError::from),
        Err(error) => Err(error),
    };
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.map_err(|error| state.edge.runs.unreadable(begun.run, error))?;
    Ok(run_response(&run, Some((&begun, keyed))))
}

async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let run = state.edge.threads.run(&caller, user.as_ref(), id(request)?).await?;
    Ok(response(StatusCode::OK, &run))
}

async fn cancelled(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let key = key(request, &caller, user.as_ref(), b"")?;
    let run = state
        .edge
        .threads
        .cancel(&caller, user.as_ref(), id(request)?, key.as_ref());
    let run = run.await?;
    Ok(run_response(&run, None))
}

/// Lists the user's own threads ([`acting::of_threads`]).
async fn all(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::list(Spelling::Camel, request.query_string())?;
    let user = acting::of_threads(state, &caller, request)?;
    let page = state.edge.threads.list(&caller, user, query).await?;
    Ok(page::list(Spelling::Camel, "threads", &page))
}

async fn whole(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let before = before(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let id = request
        .match_info()
        .get("id")
        .and_then(ThreadId::parse)
        .ok_or(Error::NotFound)?;
    let thread = state.edge.threads.thread(&caller, user.as_ref(), id, before).await?;
    Ok(response(StatusCode::OK, &thread))
}

/// `before=N`: the messages before number N.
fn before(text: &str) -> Result<Option<u64>, Error> {
    let mut before = None;
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        if name != "before" {
            return Err(query::invalid(
                &name,
                "is not a known parameter; allowed is before".to_owned(),
            ));
        }
        let number = query::number(&value);
        before = Some(number.ok_or_else(|| query::no_such(&name, &value, "the number of a message, such as 12"))?);
    }
    Ok(before)
}

/// 200 for a run that has ended or waits for approval, else 202.
fn run_response(run: &RunAnswer, begun: Option<(&Begun, bool)>) -> HttpResponse {
    let rests = ["completed", "failed", "awaiting_confirmation"].contains(&run.status);
    let status = if rests { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = response(status, run);
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/agent/runs/{}", run.run_id)) {
        headers.insert(header::LOCATION, location);
    }
    if let Some((begun, keyed)) = begun {
        for (name, value) in headers_of(begun, keyed) {
            headers.insert(name, value);
        }
    }
    if !rests {
        headers.insert(header::RETRY_AFTER, headers::seconds(1));
    }
    response
}
