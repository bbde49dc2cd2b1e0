//! Planning sessions: start and refine. `execute` confirms a plan, `change` edits it and cancels, `read` shows what there
//! is, and `work` what was done.

pub(super) mod change;
mod error;
pub(super) mod events;
pub(super) mod execute;
pub(super) mod read;
pub(super) mod work;

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use tracing::Instrument;
use utoipa::{IntoParams, ToSchema};

use self::error::unreadable;
use super::agents::response;
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::openapi::params::{Acting, ActingUser, Prefer};
use super::runs::{PREFERENCE_APPLIED, Patience, headers_of, meta, time_zone};
use super::{State, acting, body, headers, query};
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::planning_session::SessionStatus;
use crate::surfaces::caller::Caller;
use crate::surfaces::planning::{BegunPlanning, PlanningError, RefinePlan, Session, StartPlanning};

/// `POST /v1/sessions`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct StartBody {
    /// The goal; at most 32 KiB.
    pub prompt: String,
    /// The repository: `https://github.com/OWNER/REPO`, on the host that the setting `github.url` names.
    pub repo_url: String,
    /// The end of the session, RFC 3339 with an offset; at least 10 s ahead. After it nothing begins.
    #[schema(format = "date-time")]
    pub deadline: String,
    /// The IANA name of the user's time zone. Absent: the planner learns that it is unknown.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

/// `POST /v1/sessions/{id}/refine`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RefineBody {
    /// What to change in the plan; at most 32 KiB.
    pub refinement_prompt: String,
}

/// A planning session.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes a parameter")]
pub(super) struct SessionPath {
    /// The session's id.
    id: String,
}

/// Starts a planning session.
///
/// gavel reads the repository and proposes a plan. Nothing of it is executed. The response waits for the plan; with
/// `Prefer: respond-async` it comes at once, with `Prefer: wait=N` after at most N seconds. The session reports the
/// outcome: 201 means that the planning has ended, not that it succeeded. A client that disconnects does not cancel it.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    operation_id = "startPlanning",
    tag = "planning sessions",
    params(Prefer, ActingUser, Acting),
    request_body(
        content = StartBody,
        description = "The goal.",
        example = json!({
            "prompt": "Accept ISO weeks such as 2026-W48, with tests.",
            "repoUrl": "https://github.com/acme/dates",
            "deadline": "2026-11-21T18:00:00+01:00"
        })
    ),
    responses(
        (
            status = 201,
            description = "The session, which has a plan or has failed; `Location` names it.",
            body = Session,
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
            description = "The session, which has no plan yet; `Location` names it.",
            body = Session,
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
        Code::UserMismatch, Code::Forbidden, Code::RepositoryNotAllowed, Code::IdempotencyKeyReused, Code::RateLimited,
        Code::TooManySessions, Code::OutcomeUnrecorded, Code::RunUnreadable, Code::AgentUnavailable
    ])))
)]
pub(super) async fn start(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = started(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

/// Refines a plan.
///
/// The model makes a new version of the whole plan from the goal, the current plan and all refinements so far. If that
/// fails, the current version remains, and `refinement` gives the reason. The response waits for the new version as
/// that of `POST /v1/sessions` does. Only a session with status `AWAITING_CONFIRMATION` can be refined.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/refine",
    operation_id = "refinePlan",
    tag = "planning sessions",
    params(SessionPath, Prefer, ActingUser, Acting),
    request_body(
        content = RefineBody,
        description = "What to change.",
        example = json!({"refinementPrompt": "Write the tests first, and leave the README alone."})
    ),
    responses(
        (
            status = 200,
            description = "The session, with the new version or the current one.",
            body = Session,
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
            description = "The session, whose new version is being made; `Location` names it.",
            body = Session,
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
        Code::UserMismatch, Code::NotFound, Code::PlanInProgress, Code::PlanLocked, Code::PlanChanged,
        Code::SessionOver, Code::DeadlinePassed, Code::IdempotencyKeyReused, Code::RateLimited,
        Code::TooManySessions, Code::OutcomeUnrecorded, Code::RunUnreadable, Code::AgentUnavailable
    ])))
)]
pub(super) async fn refine(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = refined(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

/// Authenticates, reads and parses the request, then checks user and idempotency; the surface checks quota and
/// admission.
async fn started(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let patience = Patience::of(request.headers())?;
    let body = body::read(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let given: StartBody = body::parse(&body, r#"{"prompt", "repoUrl", "deadline", "timeZone"?}"#)?;
    let user = acting::required(state, &caller, request)?;
    let start = StartPlanning {
        prompt: given.prompt,
        repo_url: given.repo_url,
        deadline: given.deadline,
        time_zone: given.time_zone.map(|name| time_zone(&name, "/timeZone")).transpose()?,
        background: patience == Patience::None,
        meta: meta(exchange, request, &caller, &user, &body)?,
    };
    let keyed = start.meta.idempotency.is_some();
    let begun = state.edge.planning.start_planning(&caller, user, start).await?;
    wait(state, &caller, begun, (patience, keyed), StatusCode::CREATED).await
}

async fn refined(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let patience = Patience::of(request.headers())?;
    let body = body::read(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let given: RefineBody = body::parse(&body, r#"{"refinementPrompt"}"#)?;
    let user = acting::user(state, &caller, request)?;
    let asking = asking(&caller, user.as_ref())?;
    let refine = RefinePlan {
        session: id(request)?,
        refinement_prompt: given.refinement_prompt,
        background: patience == Patience::None,
        meta: meta(exchange, request, &caller, &asking, &body)?,
    };
    let keyed = refine.meta.idempotency.is_some();
    let begun = state.edge.planning.refine_plan(&caller, user.as_ref(), refine).await?;
    wait(state, &caller, begun, (patience, keyed), StatusCode::OK).await
}

/// The user to whom the key of a request about an existing session is bound. The session keeps its own user.
fn asking(caller: &Caller, user: Option<&UserId>) -> Result<UserId, Error> {
    let asking = user.cloned().or_else(|| UserId::parse(caller.name()).ok());
    asking.ok_or(Error::Internal)
}

/// Returns the session after its run has ended, or when the caller's waiting time is exhausted. `ended` is the status
/// in the first case; in the second it is 202.
async fn wait(
    state: &State,
    caller: &Caller,
    mut begun: BegunPlanning,
    (patience, keyed): (Patience, bool),
    ended: StatusCode,
) -> Result<HttpResponse, Error> {
    let planning = &state.edge.planning;
    let session = match patience.wait(planning.wait(caller, &mut begun)).await {
        Ok(Some(session)) => Ok(session),
        Ok(None) => planning
            .session(caller, None, begun.session)
            .await
            .map_err(PlanningError::from),
        Err(error) => Err(error),
    };
    // The session exists: if it cannot be read now, the request must not be sent again.
    let session = session.map_err(|error| unreadable(state, begun.session, begun.begun.run, error))?;
    let plans = session.status == SessionStatus::Planning;
    let status = if plans { StatusCode::ACCEPTED } else { ended };
    let mut response = response(status, &session);
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/sessions/{}", session.session_id)) {
        headers.insert(header::LOCATION, location);
    }
    for (name, value) in headers_of(&begun.begun, keyed) {
        headers.insert(name, value);
    }
    if let Some(applied) = patience.applied() {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(applied));
    }
    if plans {
        headers.insert(header::RETRY_AFTER, headers::seconds(1));
    }
    Ok(response)
}

/// The session id of the path; an invalid id is not found, like an id of another tenant or user.
fn id(request: &HttpRequest) -> Result<PlanningSessionId, Error> {
    let id = request.match_info().get("id").and_then(PlanningSessionId::parse);
    id.ok_or(Error::NotFound)
}
