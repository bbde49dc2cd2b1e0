//! Reads what was done for a plan: the steps of a task, and the log of all actions.

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};

use super::{SessionPath, id};
use crate::domain::plan::TaskId;
use crate::http::agents::response;
use crate::http::error::{Code, Error};
use crate::http::openapi::params::{ActingUser, CamelPaging};
use crate::http::openapi::schemas::page;
use crate::http::spelling::Spelling;
use crate::http::{State, acting, page, query};
use crate::surfaces::decisions::Page;
use crate::surfaces::planning::{LoggedAction, TaskDetail};

page! {
    /// A page of the log of a planning session.
    #[serde(rename_all = "camelCase")]
    PlanningLogPage { actions: LoggedAction }
}

/// Reads a task with its history.
///
/// A task of the current plan, with each step: what the model meant to do, its call, the result, and what it concluded.
/// An error is an observation `{"error": {"code", "message"}}`; while a call waits or runs the observation is null.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/tasks/{taskId}",
    operation_id = "getPlanTask",
    tag = "planning sessions",
    params(
        SessionPath,
        ("taskId" = String, Path, description = "The task's id, such as `t1`."),
        ActingUser,
        ("view" = Option<String>, Query, description = "`raw`: also `rawReactHistory`, the history as JSON text."),
        ("after" = Option<u32>, Query, description = "Only the steps after this number."),
    ),
    responses((status = 200, description = "The response.", body = TaskDetail)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(in crate::http) async fn task(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(one_task(&state, &request).await)
}

/// Lists the actions of a planning session.
///
/// Every tool call of every task, in order, with how it ended and what allowed it. Results are in the history of each
/// task.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/log",
    operation_id = "listPlanningActions",
    tag = "planning sessions",
    params(SessionPath, ActingUser, CamelPaging),
    responses((status = 200, description = "The response.", body = PlanningLogPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::NotFound])))
)]
pub(in crate::http) async fn log(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(log_page(&state, &request).await)
}

async fn one_task(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let (is_raw, after) = view(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let task = request.match_info().get("taskId").and_then(TaskId::parse);
    let task = task.ok_or(Error::NotFound)?;
    let found = state
        .edge
        .planning
        .task(&caller, user.as_ref(), id(request)?, (task, after));
    let found = found.await?;
    let found = if is_raw { found.raw() } else { found };
    Ok(response(StatusCode::OK, &found))
}

async fn log_page(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::page(Spelling::Camel, request.query_string())?;
    let after = query::after(query.page_token.as_deref())?;
    let user = acting::user(state, &caller, request)?;
    let most = query.page_size as usize;
    // One more shows whether others follow.
    let actions = state
        .edge
        .planning
        .log(&caller, user.as_ref(), id(request)?, (after, most + 1));
    let mut items = actions.await?;
    let has_more = items.len() > most;
    items.truncate(most);
    let last = items.last().filter(|_| has_more);
    let next_page_token = last.map(|last| last.n.to_string());
    Ok(page::list(Spelling::Camel, "actions", &Page { items, next_page_token }))
}

/// `view=raw` and `after=N`, or nothing.
fn view(text: &str) -> Result<(bool, u32), Error> {
    let (mut is_raw, mut after) = (false, 0);
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        match (&*name, &*value) {
            ("view", "raw") => is_raw = true,
            ("view", other) => return Err(query::no_such("view", other, "raw")),
            ("after", number) => {
                let number = query::number(number);
                after = number.ok_or_else(|| query::no_such("after", &value, "the number of a step, such as 3"))?;
            }
            _ => {
                let detail = "is not a known parameter; allowed are view and after".to_owned();
                return Err(query::invalid(&name, detail));
            }
        }
    }
    Ok((is_raw, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_and_a_step_are_read_and_nothing_else_is_accepted() {
        assert_eq!(view("").unwrap(), (false, 0));
        assert_eq!(view("view=raw&after=12").unwrap(), (true, 12));
        for invalid in ["view=full", "after=", "after=-1", "after=x", "page=2"] {
            assert!(view(invalid).is_err(), "{invalid}");
        }
    }
}
