//! Edits the plan of a session, and cancels a session.

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{SessionPath, asking, id};
use crate::http::agents::response;
use crate::http::body::{self, Media};
use crate::http::error::{Code, Error};
use crate::http::exchange::Exchange;
use crate::http::headers::only;
use crate::http::openapi::params::ActingUser;
use crate::http::runs::meta;
use crate::http::{State, acting, query};
use crate::surfaces::planning::{Draft, EditPlan, Session};
use crate::surfaces::request::FieldError;

const IF_MATCH: &str = "If-Match";
/// The longest reason, in bytes.
const MAX_REASON: usize = 4 << 10;

/// `POST /v1/sessions/{id}/cancel`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = CancelPlanningBody)]
pub(in crate::http) struct CancelBody {
    /// Why; at most 4 KiB.
    pub reason: Option<String>,
}

/// The version that was edited, and a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes parameters")]
pub(in crate::http) struct Edited {
    /// The `planVersion` that you edited, in double quotes.
    #[param(rename = "If-Match", pattern = "^\"[1-9][0-9]{0,8}\"$", example = "\"3\"")]
    version: String,
    /// Makes a retry safe. For 24 h the same key and body return the session, and another body gets 422.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]{1,255}$"
    )]
    key: String,
}

/// Edits a plan by hand.
///
/// The body is the whole plan, which becomes its next version. It is checked like a plan of the model, and all errors
/// are reported at once. A task with an `id` continues that task of the current version; so does one with the same
/// title. Only a session with status `AWAITING_CONFIRMATION` can be edited, and only its current version.
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/plan",
    operation_id = "editPlan",
    tag = "planning sessions",
    params(SessionPath, Edited, ActingUser),
    request_body(
        content = Draft,
        description = "The plan, with 1 to 30 tasks.",
        example = json!({
            "summary": "Parse ISO weeks, tests first.",
            "tasks": [{
                "id": "t1",
                "title": "Write failing tests",
                "goal": "Tests for ISO weeks such as 2026-W48.",
                "doneWhen": "The test run fails in the new tests alone.",
                "tools": ["executeScript"]
            }]
        })
    ),
    responses((status = 200, description = "The session with the new version.", body = Session)),
    extensions(("x-problems" = json!([
        Code::UserMismatch, Code::NotFound, Code::PlanInProgress, Code::PlanLocked, Code::PlanChanged,
        Code::SessionOver, Code::DeadlinePassed, Code::IdempotencyKeyReused, Code::OutcomeUnrecorded
    ])))
)]
pub(in crate::http) async fn edit(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = edited(&state, &exchange, &request, payload).await;
    exchange.finish(answer)
}

/// Cancels a planning session.
///
/// Its run ends, and nothing more is done. Plan and history remain readable. A session that has ended remains unchanged,
/// so the request can be sent again.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/cancel",
    operation_id = "cancelPlanning",
    tag = "planning sessions",
    params(SessionPath, ActingUser),
    // A reference, because a type would make the body required.
    request_body(
        description = "The reason; no body if there is none.",
        content((
            ref("#/components/schemas/CancelPlanningBody") = "application/json",
            example = json!({"reason": "The repository moves next week."})
        ))
    ),
    responses(
        (status = 200, description = "The session, which has ended.", body = Session),
        (status = 202, description = "The session, which ends once its work was interrupted.", body = Session),
    ),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound, Code::OutcomeUnrecorded])))
)]
pub(in crate::http) async fn cancel(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = cancelled(&state, &request, payload).await;
    exchange.finish(answer)
}

async fn edited(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let version = version(request)?;
    let body = body::read(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let allowed = r#"{"summary"?, "tasks": [{"id"?, "title", "goal", "doneWhen", "tools"}], "assumptions"?, "risks"?}"#;
    let draft: Draft = body::parse(&body, allowed)?;
    let user = acting::user(state, &caller, request)?;
    let asking = asking(&caller, user.as_ref())?;
    let edit = EditPlan {
        session: id(request)?,
        version,
        draft,
        meta: meta(exchange, request, &caller, &asking, &body)?,
    };
    let session = state.edge.planning.edit(&caller, user.as_ref(), edit).await?;
    Ok(response(StatusCode::OK, &session))
}

async fn cancelled(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let (body, media) = body::read_input(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let given: CancelBody = match media {
        _ if body.is_empty() => CancelBody::default(),
        Media::Json => body::parse(&body, r#"{"reason"?}"#)?,
        Media::Text => return Err(Error::NotJson),
    };
    if given.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        let detail = format!("has more than {MAX_REASON} bytes");
        return Err(Error::Invalid(vec![FieldError::new("/reason", detail)]));
    }
    let reason = given.reason.filter(|reason| !reason.trim().is_empty());
    let user = acting::user(state, &caller, request)?;
    let session = state.edge.planning.cancel(&caller, user.as_ref(), id(request)?, reason);
    let session = session.await?;
    let status = match session.status.has_ended() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok(response(status, &session))
}

/// Parses `If-Match: "3"`. Without it an edit could overwrite a version that its author has not seen.
fn version(request: &HttpRequest) -> Result<u32, Error> {
    let headers = request.headers();
    if !headers.contains_key(header::IF_MATCH) {
        return Err(Error::InvalidHeader(
            IF_MATCH,
            "is missing; it must be the planVersion that you edited, in double quotes, such as \"3\"",
        ));
    }
    let tag = only(headers, &header::IF_MATCH).and_then(|value| value.to_str().ok());
    let number = tag.and_then(|tag| tag.strip_prefix('"')?.strip_suffix('"'));
    let version = number
        .filter(|number| !number.starts_with('0'))
        .and_then(query::number::<u32>);
    version.ok_or(Error::InvalidHeader(
        IF_MATCH,
        "must be the planVersion that you edited, in double quotes, such as \"3\"",
    ))
}
