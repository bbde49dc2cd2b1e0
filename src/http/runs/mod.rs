//! Runs of agents: trigger, get, list, cancel, resume.

mod error;
pub(super) mod events;
mod read;

use crate::http::request::Raw;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use tracing::Instrument;

pub(super) use self::error::session_moved;
pub(super) use self::read::{InputText, Inputs, Patience, time_zone};
use self::read::{Settled, TimeZone, Timeout, inputs, options, settled};
use super::agents::{agent, project, response};
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::headers::{self, IDEMPOTENCY_REPLAYED};
use super::openapi::params::{
    self, Acting, ActingUser, AgentPath, KeyOfAnswer, LATEST_FIRST, Paging, Prefer, ProjectPath, RunPath,
};
use super::openapi::schemas::page;
use super::{State, acting, body, idempotency, query};
use crate::domain::agent_run::{AgentRun, RunStatus};
use crate::domain::ids::{RunId, UserId};
use crate::http::page;
use crate::http::spelling::Spelling;
use crate::surfaces::agents::Trigger;
use crate::surfaces::caller::Caller;
use crate::surfaces::request::{Claim, RequestMeta};
use crate::surfaces::runs::{Begun, Resume, RunError};

pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

page! {
    /// A page of runs.
    RunPage { runs: AgentRun }
}

/// Runs an agent.
///
/// Waits until the run has ended. With `Prefer: respond-async` the run is queued and answered at once, with
/// `Prefer: wait=N` after at most N seconds. The run reports its outcome: 200 means that it has ended, not that it
/// succeeded. A client that disconnects does not cancel it.
#[utoipa::path(
    post,
    path = "/api/projects/{project}/agents/{agent}/trigger",
    operation_id = "triggerAgent",
    tag = "runs",
    params(ProjectPath, AgentPath, Timeout, TimeZone, Prefer, ActingUser, Acting),
    // References, because a type would make the body required.
    request_body(
        description = "The agent's inputs by name. An agent with one text input also accepts the text alone, as text/plain or as \
                       a JSON string. An agent without inputs needs no body. At most 1 MiB.",
        content(
            (
                ref("#/components/schemas/Inputs") = "application/json",
                example = json!({"objective": "Where is the rate limit applied?"})
            ),
            (ref("#/components/schemas/InputText") = "text/plain")
        )
    ),
    responses(
        (
            status = 200,
            description = "The run, which has ended.",
            body = AgentRun,
            headers(
                ("RateLimit-Policy"),
                ("RateLimit"),
                ("Idempotency-Replayed"),
                ("Location"),
                ("Preference-Applied")
            )
        ),
        (
            status = 202,
            description = "The run, which is still in progress; `Location` names it.",
            body = AgentRun,
            headers(
                ("RateLimit-Policy"),
                ("RateLimit"),
                ("Idempotency-Replayed"),
                ("Location"),
                ("Preference-Applied"),
                ("Retry-After")
            )
        ),
    ),
    extensions(("x-problems" = json!([
        Code::UserMismatch, Code::Forbidden, Code::NotFound, Code::InvalidDefinition, Code::IdempotencyKeyReused,
        Code::RateLimited, Code::OutcomeUnrecorded, Code::RunUnreadable
    ])))
)]
pub(super) async fn trigger(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = triggered(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

/// Resumes a run that is paused, or that failed since its processes were lost.
///
/// The run continues with a fresh budget of steps and time, at most 500 steps over all resumes for an agent with a limit
/// of its own. `attempts` lists what came before.
#[utoipa::path(
    post,
    path = "/api/runs/{id}/resume",
    operation_id = "resumeRun",
    tag = "runs",
    params(RunPath, Timeout, Prefer, ActingUser, Acting),
    request_body(
        content = Settled,
        description = "The outcomes of in-doubt calls; `{}` if there are none.",
        example = json!({})
    ),
    responses(
        (
            status = 200,
            description = "The run, which has ended.",
            body = AgentRun,
            headers(
                ("RateLimit-Policy"),
                ("RateLimit"),
                ("Idempotency-Replayed"),
                ("Location"),
                ("Preference-Applied")
            )
        ),
        (
            status = 202,
            description = "The run, which is still in progress; `Location` names it.",
            body = AgentRun,
            headers(
                ("RateLimit-Policy"),
                ("RateLimit"),
                ("Idempotency-Replayed"),
                ("Location"),
                ("Preference-Applied"),
                ("Retry-After")
            )
        ),
    ),
    extensions(("x-problems" = json!([
        Code::UserMismatch, Code::Forbidden, Code::NotFound, Code::NotPaused, Code::PartOfRun,
        Code::StepLimitExceeded, Code::DeadlinePassed, Code::CallsInDoubt, Code::IdempotencyKeyReused, Code::RateLimited,
        Code::TooManySessions, Code::OutcomeUnrecorded, Code::RunUnreadable
    ])))
)]
pub(super) async fn resume(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = resumed(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

/// Lists the runs of a project.
///
/// Latest first. Without a condition on `parent_run_id`, only runs that no other run called. A user sees only their own.
#[utoipa::path(
    get,
    path = "/api/projects/{project}/runs",
    operation_id = "listRuns",
    tag = "runs",
    params(
        ProjectPath,
        ActingUser,
        Paging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("agent_id, status, user_id, parent_run_id, definition_hash, created_at, stop_reason"),
            example = "status = \"paused\""
        ),
        ("order_by" = Option<String>, Query, description = LATEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = RunPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound, Code::QueryTooSlow])))
)]
pub(super) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(page(&state, &request).await)
}

/// Reads one run.
///
/// A run of another tenant or user answers 404, like a missing one.
#[utoipa::path(
    get,
    path = "/api/runs/{id}",
    operation_id = "getRun",
    tag = "runs",
    params(RunPath, ActingUser),
    responses((status = 200, description = "The response.", body = AgentRun)),
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
/// Also cancels the runs that it called. A run that has ended remains unchanged.
#[utoipa::path(
    post,
    path = "/api/runs/{id}/cancel",
    operation_id = "cancelRun",
    tag = "runs",
    params(RunPath, ActingUser, KeyOfAnswer),
    responses(
        (status = 200, description = "The run has ended.", body = AgentRun, headers(("Location"))),
        (
            status = 202,
            description = "The run ends when the process that executes it receives the cancellation.",
            body = AgentRun,
            headers(("Location"))
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

/// Authenticates, reads and parses the request, then checks user and idempotency; the surface checks quota and
/// admission.
async fn triggered(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let (body, media) = body::read_input(state, request, payload, &caller).await?;
    let inputs = inputs(&body, media)?;
    let (timeout, time_zone) = options(request.query_string(), "timeout_s, time_zone")?;
    let patience = Patience::of(request.headers())?;
    let user = acting::required(state, &caller, request)?;
    let trigger = Trigger {
        project: project(request)?,
        agent: agent(request)?.to_owned(),
        inputs,
        timeout,
        time_zone,
        background: patience == Patience::None,
        meta: meta(exchange, request, &caller, &user, &body)?,
    };
    let keyed = trigger.meta.idempotency.is_some();
    let begun = state.edge.agents.trigger(&caller, user, trigger).await?;
    wait(state, &caller, begun, patience, keyed).await
}

async fn resumed(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let body = body::read(state, request, payload, &caller).await?;
    let settled = settled(&body)?;
    let (timeout, _) = options(request.query_string(), "timeout_s")?;
    let patience = Patience::of(request.headers())?;
    let user = acting::user(state, &caller, request)?;
    let id = id(request)?;
    // The run keeps its own user, independent of the caller; the key is bound to the caller.
    let asking = user.clone().or_else(|| UserId::parse(caller.name()).ok());
    let asking = asking.ok_or(Error::Internal)?;
    let resume = Resume {
        settled,
        timeout,
        background: patience == Patience::None,
        meta: meta(exchange, request, &caller, &asking, &body)?,
    };
    let keyed = resume.meta.idempotency.is_some();
    let begun = state.edge.runs.resume(&caller, user, id, resume).await?;
    wait(state, &caller, begun, patience, keyed).await
}

async fn page(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let query = query::list(Spelling::Snake, request.query_string())?;
    let page = state
        .edge
        .agents
        .runs(&caller, user.as_ref(), &project(request)?, query)
        .await?;
    Ok(page::list(Spelling::Snake, "runs", &page))
}

async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let run = state.edge.runs.get(&caller, user.as_ref(), id(request)?).await?;
    Ok(response(StatusCode::OK, &run))
}

async fn cancelled(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let key = key(request, &caller, user.as_ref(), b"")?;
    let run = state
        .edge
        .runs
        .cancel(&caller, user.as_ref(), id(request)?, key.as_ref());
    let run = run.await?;
    // A run in progress ends when its worker receives the cancellation.
    let status = if run.status.has_ended() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let mut response = response(status, &run);
    locate(&mut response, run.id);
    Ok(response)
}

/// Returns the run after it has ended, or when the caller's waiting time is exhausted.
async fn wait(
    state: &State,
    caller: &Caller,
    mut begun: Begun,
    patience: Patience,
    keyed: bool,
) -> Result<HttpResponse, Error> {
    let runs = &state.edge.runs;
    let run = match patience.wait(runs.wait(caller, &mut begun)).await {
        Ok(Some(run)) => Ok(run),
        Ok(None) => runs.get(caller, None, begun.run).await.map_err(RunError::from),
        Err(error) => Err(error),
    };
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.map_err(|error| runs.unreadable(begun.run, error))?;
    let rests = run.status.has_ended() || run.status == RunStatus::AwaitingConfirmation;
    let status = if rests { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = response(status, &run);
    locate(&mut response, run.id);
    dress(&mut response, &begun, patience, keyed, &run);
    Ok(response)
}

fn dress(response: &mut HttpResponse, begun: &Begun, patience: Patience, keyed: bool, run: &AgentRun) {
    let headers = response.headers_mut();
    for (name, value) in headers_of(begun, keyed) {
        headers.insert(name, value);
    }
    if let Some(applied) = patience.applied() {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(applied));
    }
    if !run.status.has_ended() {
        headers.insert(header::RETRY_AFTER, headers::seconds(1));
    }
}

/// Headers of the response to a request that created a run: the quota it used, or that it is a replay.
pub(super) fn headers_of(begun: &Begun, keyed: bool) -> Vec<(HeaderName, HeaderValue)> {
    let quota = begun.quota.filter(|_| !begun.replayed);
    let mut lines: Vec<_> = quota.iter().flat_map(headers::rate_limit).collect();
    if keyed && begun.replayed {
        lines.push((IDEMPOTENCY_REPLAYED, headers::TRUE));
    }
    lines
}

fn locate(response: &mut HttpResponse, run: RunId) {
    if let Ok(location) = HeaderValue::from_str(&format!("/api/runs/{run}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
}

pub(super) fn meta(
    exchange: &Exchange,
    request: &HttpRequest,
    caller: &Caller,
    user: &UserId,
    body: &[u8],
) -> Result<RequestMeta, Error> {
    Ok(RequestMeta {
        request_id: Arc::clone(&exchange.id.text),
        traceparent: headers::traceparent(request.headers()),
        idempotency: key(request, caller, Some(user), body)?,
        shed: None,
    })
}

/// The request's `Idempotency-Key`, bound to the requested path: the same key for another agent is another key.
pub(super) fn key(
    request: &HttpRequest,
    caller: &Caller,
    user: Option<&UserId>,
    body: &[u8],
) -> Result<Option<Claim>, Error> {
    let key = idempotency::key(request.headers())?;
    Ok(key.map(|key| idempotency::claim(key, caller, user, request.path(), body)))
}

/// The run id of the path; an invalid id is not found, like an id of another tenant or user.
pub(super) fn id(request: &HttpRequest) -> Result<RunId, Error> {
    let id = request.match_info().get("id").and_then(RunId::parse);
    id.ok_or(Error::NotFound)
}
