//! The decision log and tool-call log, for analysts: `GET /v1/decisions[/{id}]`, `GET /v1/tool-invocations`.

use actix_web::http::header;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::State;
use super::error::Error;
use super::exchange::Exchange;
use super::routes::Route;
use super::spelling::Spelling;
use super::{acting, headers, query};
use crate::domain::ids::DecisionId;
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::{ListQuery, Page};

pub(super) async fn list(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Decisions));
    exchange.finish(page_of_decisions(&state, &request).await)
}

pub(super) async fn tool_invocations(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ToolInvocations));
    exchange.finish(page_of_tool_invocations(&state, &request).await)
}

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

fn page_response(name: &str, page: Page) -> HttpResponse {
    response(&json!({ name: page.items, "next_page_token": page.next_page_token }))
}

fn response(value: &Value) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CONTENT_TYPE, headers::JSON));
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    response.body(value.to_string())
}
