//! `GET /v1/decisions[/{id}]`, `GET /v1/tool-invocations`: analysts read the record.

use std::sync::Arc;

use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::error::{Code, Problem};
use super::{Edge, json_response, request};
use crate::domain::ids::DecisionId;
use crate::surfaces::chat::request::FieldError;
use crate::surfaces::decisions::{ListQuery, Page};

const DEFAULT_PAGE: u32 = 50;
const MAX_PAGE: u32 = 1000;

/// A page of decisions.
#[utoipa::path(get, path = "/v1/decisions", tag = "records", params(super::docs::ListParameters),
    responses(
        (status = 200, description = "Decisions, latest first", body = super::docs::DecisionPage),
        (status = "default", description = "A problem document", body = super::error::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(request: HttpRequest, edge: Data<Edge>) -> HttpResponse {
    let id = request::request_id(request.headers());
    let answer = async {
        let caller = request::caller(&edge.auth, request.headers(), &id).await?;
        let page = edge.decisions.list(&caller, query(request.query_string(), &id)?).await;
        Ok(shown("decisions", page.map_err(|error| Problem::of_query(error, &id))?))
    };
    finish(answer.await, &id)
}

/// A page of tool calls.
#[utoipa::path(get, path = "/v1/tool-invocations", tag = "records", params(super::docs::ListParameters),
    responses(
        (status = 200, description = "Tool calls, latest first", body = super::docs::ToolInvocationPage),
        (status = "default", description = "A problem document", body = super::error::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn tool_invocations(request: HttpRequest, edge: Data<Edge>) -> HttpResponse {
    let id = request::request_id(request.headers());
    let answer = async {
        let caller = request::caller(&edge.auth, request.headers(), &id).await?;
        let page = edge
            .decisions
            .tool_invocations(&caller, query(request.query_string(), &id)?)
            .await;
        Ok(shown(
            "tool_invocations",
            page.map_err(|error| Problem::of_query(error, &id))?,
        ))
    };
    finish(answer.await, &id)
}

/// One decision with its tool calls.
#[utoipa::path(get, path = "/v1/decisions/{id}", tag = "records",
    params(("id" = String, Path, description = "The decision_id of an answer")),
    responses(
        (status = 200, description = "The decision as it is on the record", body = super::docs::DecisionRecord),
        (status = "default", description = "A problem document", body = super::error::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn get(request: HttpRequest, path: Path<String>, edge: Data<Edge>) -> HttpResponse {
    let id = request::request_id(request.headers());
    let answer = async {
        let caller = request::caller(&edge.auth, request.headers(), &id).await?;
        let missing = || Problem::new(Code::NotFound, "there is no such decision", &id);
        let decision = DecisionId::parse(&path).ok_or_else(missing)?;
        let found = edge.decisions.get(&caller, decision).await;
        found
            .map_err(|error| Problem::of_query(error, &id))?
            .ok_or_else(missing)
    };
    finish(answer.await, &id)
}

fn finish(answer: Result<Value, Problem>, request_id: &Arc<str>) -> HttpResponse {
    match answer {
        Ok(value) => json_response(value.to_string(), request_id),
        Err(problem) => problem.respond(),
    }
}

fn shown(name: &str, page: Page) -> Value {
    let mut shown = json!({ name: page.items });
    if let Some(token) = page.next_page_token {
        shown["next_page_token"] = Value::String(token);
    }
    shown
}

/// Reads the parameters; everything that is wrong is said at once.
fn query(text: &str, request_id: &Arc<str>) -> Result<ListQuery, Problem> {
    let mut query = ListQuery {
        page_size: DEFAULT_PAGE,
        ..ListQuery::default()
    };
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        let wrong = |detail: String| FieldError {
            pointer: name.to_string(),
            detail,
        };
        if seen.contains(&name) {
            errors.push(wrong("is given twice".to_owned()));
        }
        match name.as_ref() {
            "page_size" => match value.parse() {
                Ok(size) if (1..=MAX_PAGE).contains(&size) => query.page_size = size,
                _ => errors.push(wrong(format!("is {value:?}; 1 to {MAX_PAGE} is allowed"))),
            },
            "page_token" => query.page_token = Some(value.into_owned()),
            "filter" => query.filter = Some(value.into_owned()),
            "order_by" => query.order_by = Some(value.into_owned()),
            _ => errors.push(wrong(
                "is not known; page_size, page_token, filter, order_by are allowed".to_owned(),
            )),
        }
        seen.push(name);
    }
    if errors.is_empty() {
        Ok(query)
    } else {
        Err(Problem::fields(errors, request_id))
    }
}
