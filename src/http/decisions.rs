//! The decision log and tool-call log, for analysts: `GET /v1/decisions[/{id}]`, `GET /v1/tool-invocations`.

use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::json;

use super::State;
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::openapi::params::{self, LATEST_FIRST, Paging, RowsOfUser};
use super::openapi::schemas::page;
use super::routes::Route;
use super::spelling::Spelling;
use super::{acting, headers, query};
use crate::api::{DecisionDetail, DecisionRecord, ToolInvocation};
use crate::domain::ids::DecisionId;
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::{ListQuery, Page};

page! {
    /// A page of decisions.
    DecisionPage { decisions: DecisionRecord }
}

page! {
    /// A page of tool calls.
    ToolInvocationPage { tool_invocations: ToolInvocation }
}

/// Lists decisions.
///
/// Latest first. A user sees their own rows; a service, or a user with the role `analyst`, those of the tenant.
#[utoipa::path(
    get,
    path = "/v1/decisions",
    operation_id = "listDecisions",
    tag = "record",
    params(
        RowsOfUser,
        Paging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter(
                "decision_type, outcome_category, intent, user_id, conversation_id, surface, model, status, created_at, \
                 duration_ms, iterations"
            ),
            example = "outcome_category = \"ERROR:*\""
        ),
        ("order_by" = Option<String>, Query, description = LATEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = DecisionPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::QueryTooSlow])))
)]
pub(super) async fn list(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Decisions));
    exchange.finish(page_of_decisions(&state, &request).await)
}

/// Lists tool calls.
///
/// Latest first, every call of every decision. Visibility is the same as for decisions.
#[utoipa::path(
    get,
    path = "/v1/tool-invocations",
    operation_id = "listToolInvocations",
    tag = "record",
    params(
        RowsOfUser,
        Paging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("tool, server, status, success, decision_id, created_at, duration_ms, user_id"),
            example = "tool = \"add_task\" AND success = false"
        ),
        ("order_by" = Option<String>, Query, description = LATEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = ToolInvocationPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::QueryTooSlow])))
)]
pub(super) async fn tool_invocations(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ToolInvocations));
    exchange.finish(page_of_tool_invocations(&state, &request).await)
}

/// Reads one decision with its tool calls.
///
/// A decision of another tenant or user answers 404, like a missing one.
#[utoipa::path(
    get,
    path = "/v1/decisions/{id}",
    operation_id = "getDecision",
    tag = "record",
    params(RowsOfUser, ("id" = String, Path, description = "The `decision_id` of a response.")),
    responses((status = 200, description = "The response.", body = DecisionDetail)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(super) async fn get(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Decision));
    exchange.finish(one(&state, &request).await)
}

async fn page_of_decisions(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let page = state.edge.decisions.list(&caller, query(&caller, request)?).await?;
    Ok(page_response("decisions", page))
}

async fn page_of_tool_invocations(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query(&caller, request)?;
    let page = state.edge.decisions.tool_invocations(&caller, query).await?;
    Ok(page_response("tool_invocations", page))
}

/// The requested rows: those of the user that `X-Gavel-User` names, or else of all users that the caller may see.
fn query(caller: &Caller, request: &HttpRequest) -> Result<ListQuery, Error> {
    Ok(ListQuery {
        user: acting::named_by(caller, request)?,
        ..query::list(Spelling::Snake, request.query_string())?
    })
}

/// An invalid id is not found, like an id of another tenant or user.
async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let id = request
        .match_info()
        .get("id")
        .and_then(DecisionId::parse)
        .ok_or(Error::NotFound)?;
    let user = acting::named_by(&caller, request)?;
    let row = state.edge.decisions.get(&caller, user.as_ref(), id).await?;
    Ok(response(&row.ok_or(Error::NotFound)?))
}

fn page_response<T: Serialize>(name: &str, page: Page<T>) -> HttpResponse {
    response(&json!({ name: page.items, "next_page_token": page.next_page_token }))
}

fn response(answer: &impl Serialize) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    response.json(answer)
}
