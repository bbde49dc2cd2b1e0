//! Reads planning sessions, and the versions of their plans.

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};

use super::{SessionPath, id};
use crate::http::agents::response;
use crate::http::error::{Code, Error};
use crate::http::openapi::params::{self, ActingUser, CamelPaging, LATEST_FIRST, VersionPath};
use crate::http::openapi::schemas::page;
use crate::http::spelling::Spelling;
use crate::http::{State, acting, page, query};
use crate::surfaces::decisions::Page;
use crate::surfaces::planning::{Session, Version};

/// The most versions of one answer, each with its whole plan.
const MOST_VERSIONS: u32 = 50;

page! {
    /// A page of planning sessions.
    #[serde(rename_all = "camelCase")]
    PlanningSessionPage { sessions: Session }
}

page! {
    /// A page of the versions of a plan.
    #[serde(rename_all = "camelCase")]
    PlanVersionPage { versions: Version }
}

/// Lists planning sessions.
///
/// Latest first. A user sees only their own; a service that names no user sees those of its tenant.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "listPlanningSessions",
    tag = "planning sessions",
    params(
        ActingUser,
        CamelPaging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("status, user_id, repo_url, created_at, deadline"),
            example = "status = \"AWAITING_CONFIRMATION\""
        ),
        ("orderBy" = Option<String>, Query, description = LATEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = PlanningSessionPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::QueryTooSlow])))
)]
pub(in crate::http) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(all(&state, &request).await)
}

/// Reads a planning session.
///
/// With the current version of its plan. A session of another user answers 404, like a missing one.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}",
    operation_id = "getPlanningSession",
    tag = "planning sessions",
    params(
        SessionPath,
        ActingUser,
        ("view" = Option<String>, Query, description = "`raw`: also `rawPlan`, the plan as the JSON text that is stored."),
    ),
    responses((status = 200, description = "The response.", body = Session)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(in crate::http) async fn get(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(one(&state, &request).await)
}

/// Lists the versions of a plan.
///
/// Oldest first, at most 50 at once, each with its author, the time, the reason and the whole plan. A version never
/// changes.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/history",
    operation_id = "listPlanVersions",
    tag = "planning sessions",
    params(
        SessionPath,
        ActingUser,
        CamelPaging,
    ),
    responses((status = 200, description = "At most 50 versions.", body = PlanVersionPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(in crate::http) async fn versions(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(version_page(&state, &request).await)
}

/// Reads one version of a plan.
///
/// Also one that is no longer current.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/history/{version}",
    operation_id = "getPlanVersion",
    tag = "planning sessions",
    params(SessionPath, VersionPath, ActingUser),
    responses((status = 200, description = "The response.", body = Version)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(in crate::http) async fn version(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(one_version(&state, &request).await)
}

async fn all(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::list(Spelling::Camel, request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let page = state.edge.planning.list(&caller, user.as_ref(), query).await?;
    Ok(page::list(Spelling::Camel, "sessions", &page))
}

async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let is_raw = is_raw(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let session = state
        .edge
        .planning
        .session(&caller, user.as_ref(), id(request)?)
        .await?;
    let session = if is_raw { session.raw() } else { session };
    Ok(response(StatusCode::OK, &session))
}

async fn version_page(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::page(Spelling::Camel, request.query_string())?;
    let after = query::after(query.page_token.as_deref())?;
    let user = acting::user(state, &caller, request)?;
    let most = query.page_size.min(MOST_VERSIONS);
    // One more shows whether others follow.
    let range = (after, most + 1);
    let versions = state
        .edge
        .planning
        .versions(&caller, user.as_ref(), id(request)?, range);
    let mut items = versions.await?;
    let has_more = items.len() > most as usize;
    items.truncate(most as usize);
    let last = items.last().filter(|_| has_more);
    let next_page_token = last.map(|last| last.version.to_string());
    Ok(page::list(
        Spelling::Camel,
        "versions",
        &Page { items, next_page_token },
    ))
}

async fn one_version(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let number = request.match_info().get("version").and_then(query::number::<u32>);
    let before = number.and_then(|number| number.checked_sub(1)).ok_or(Error::NotFound)?;
    let planning = &state.edge.planning;
    let found = planning
        .versions(&caller, user.as_ref(), id(request)?, (before, 1))
        .await?;
    let version = found.into_iter().find(|version| Some(version.version) == number);
    Ok(response(StatusCode::OK, &version.ok_or(Error::NotFound)?))
}

/// `view=raw`, or nothing.
fn is_raw(text: &str) -> Result<bool, Error> {
    let mut is_raw = false;
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        match (&*name, &*value) {
            ("view", "raw") => is_raw = true,
            ("view", other) => return Err(query::no_such("view", other, "raw")),
            _ => {
                let detail = "is not a known parameter; allowed is view".to_owned();
                return Err(query::invalid(&name, detail));
            }
        }
    }
    Ok(is_raw)
}
