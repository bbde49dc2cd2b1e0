//! Confirms a plan: begins the work on it, or shows what would happen.

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use utoipa::ToSchema;

use super::error::unreadable;
use super::{SessionPath, asking, id};
use crate::http::agents::response;
use crate::http::body::{self, Media};
use crate::http::error::{Code, Error};
use crate::http::exchange::Exchange;
use crate::http::openapi::params::{Acting, ActingUser, Prefer};
use crate::http::runs::{PREFERENCE_APPLIED, Patience, headers_of, meta};
use crate::http::{State, acting, headers, query};
use crate::surfaces::caller::Caller;
use crate::surfaces::planning::{DryRun, ExecutePlan, Execution, PlanningError, Session};

/// `POST /v1/sessions/{id}/execute`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = ExecutePlanBody)]
pub(in crate::http) struct ExecuteBody {
    /// The version that you confirm; absent: the current one. If another version is current, nothing is begun.
    pub plan_version: Option<u32>,
    /// Tools whose every call asks a person, whatever the plan allows.
    #[serde(default)]
    #[schema(required = false)]
    pub ask_for: Vec<String>,
    /// Begin nothing; show for each tool what would happen.
    #[serde(default)]
    #[schema(required = false)]
    pub dry_run: bool,
}

/// The session; with `dryRun`, what would happen.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ExecutePlanAnswer)]
#[expect(dead_code, reason = "describes the two kinds of answers")]
pub(in crate::http) enum Answer {
    Session(Box<Session>),
    DryRun(DryRun),
}

/// Confirms a plan and begins the work on it.
///
/// The work is done in the background, task by task, until every task is done or the deadline has passed. The response
/// comes at once; with `Prefer: wait=N` after at most N seconds, or as soon as the session has ended. From then on the
/// plan can no longer be changed by hand. The confirmation allows the tools that the plan names, in its repository and
/// on branches with the configured prefix; everything else with side effects asks a person. A session that was
/// executed before is left as it is, so the request can be sent again.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/execute",
    operation_id = "executePlan",
    tag = "planning sessions",
    params(SessionPath, Prefer, ActingUser, Acting),
    // A reference, because a type would make the body required.
    request_body(
        description = "What you confirm; no body confirms the current version.",
        content((
            ref("#/components/schemas/ExecutePlanBody") = "application/json",
            example = json!({"planVersion": 3, "askFor": ["createIssue"]})
        ))
    ),
    responses(
        (
            status = 200,
            description = "The session, which has ended; or the dry run.",
            body = Answer,
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
            description = "The session, which is being worked on; `Location` names it.",
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
        Code::UserMismatch, Code::RepositoryNotAllowed, Code::NotFound, Code::PlanInProgress, Code::PlanChanged,
        Code::SessionOver, Code::DeadlinePassed, Code::IdempotencyKeyReused, Code::RateLimited,
        Code::TooManySessions, Code::OutcomeUnrecorded, Code::RunUnreadable, Code::AgentUnavailable
    ])))
)]
pub(in crate::http) async fn execute(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = executed(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

async fn executed(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let patience = Patience::of(request.headers())?;
    let (body, media) = body::read_input(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let given: ExecuteBody = match media {
        _ if body.is_empty() => ExecuteBody::default(),
        Media::Json => body::parse(&body, r#"{"planVersion"?, "askFor"?: [TOOL], "dryRun"?}"#)?,
        Media::Text => return Err(Error::NotJson),
    };
    let user = acting::user(state, &caller, request)?;
    let asking = asking(&caller, user.as_ref())?;
    let execute = ExecutePlan {
        session: id(request)?,
        plan_version: given.plan_version,
        ask_for: given.ask_for,
        // As for every run: who waits is served by this process, such as a command by its own service.
        background: !matches!(patience, Patience::Some(_)),
        meta: meta(exchange, request, &caller, &asking, &body)?,
    };
    let planning = &state.edge.planning;
    if given.dry_run {
        let dry_run = planning.dry_run(&caller, user.as_ref(), &execute).await?;
        return Ok(response(StatusCode::OK, &dry_run));
    }
    let keyed = execute.meta.idempotency.is_some();
    let execution = planning.execute_plan(&caller, user.as_ref(), execute).await?;
    answer(state, &caller, &execution, patience, keyed).await
}

/// Returns the session at once, or when it has ended or the caller's waiting time is exhausted.
async fn answer(
    state: &State,
    caller: &Caller,
    execution: &Execution<'_>,
    patience: Patience,
    keyed: bool,
) -> Result<HttpResponse, Error> {
    let session = execution.session;
    let read = async {
        // Without a preference the caller does not wait: the work may take days.
        if let Patience::Some(_) = patience {
            patience.wait(execution.ended()).await?;
        }
        let session = state.edge.planning.session(caller, None, session).await;
        session.map_err(PlanningError::from)
    };
    // The work has begun: if the session cannot be read now, the request must not be sent again.
    let session = read
        .await
        .map_err(|error| unreadable(state, session, execution.run, error))?;
    let has_ended = session.status.has_ended();
    let mut response = response(
        if has_ended {
            StatusCode::OK
        } else {
            StatusCode::ACCEPTED
        },
        &session,
    );
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/sessions/{}", session.session_id)) {
        headers.insert(header::LOCATION, location);
    }
    if let Some(begun) = &execution.begun {
        for (name, value) in headers_of(&begun.begun, keyed) {
            headers.insert(name, value);
        }
    }
    if let Some(applied) = patience.applied() {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(applied));
    }
    if !has_ended {
        headers.insert(header::RETRY_AFTER, headers::seconds(1));
    }
    Ok(response)
}
