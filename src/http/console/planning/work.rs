//! What was done for a session: the steps of one task, and all actions.

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};

use super::super::super::State;
use super::super::super::error::Error;
use super::super::super::query;
use super::super::approvals::parameter;
use super::super::session::visitor;
use super::super::view::planning::log::log_page;
use super::super::view::planning::task::task_page;
use super::super::{Turned, page, respond};
use super::{id, path};
use crate::domain::plan::TaskId;

/// Steps per page.
const STEPS: usize = 25;
/// Actions per page.
const ACTIONS: usize = 100;

pub(in crate::http) async fn task(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, steps(&state, &request).await).await))
}

pub(in crate::http) async fn log(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, actions(&state, &request).await).await))
}

async fn steps(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let session = id(request)?;
    let task = request.match_info().get("task").and_then(TaskId::parse);
    let task = task.ok_or(Error::NotFound)?;
    let planning = &state.edge.planning;
    let found = planning.task(&visitor.caller, visitor.reads.as_ref(), session, (task, after(request)));
    let mut found = found.await?;
    let more = found.react_history.len() > STEPS;
    found.react_history.truncate(STEPS);
    let body = task_page(&found, &path(session), more, visitor.zone);
    Ok(page(StatusCode::OK, Some(&visitor), &found.task.title, &body))
}

async fn actions(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let session = id(request)?;
    let planning = &state.edge.planning;
    let range = (after(request), ACTIONS + 1);
    let found = planning.log(&visitor.caller, visitor.reads.as_ref(), session, range);
    let mut found = found.await?;
    let more = found.len() > ACTIONS;
    found.truncate(ACTIONS);
    let body = log_page(&found, &path(session), more, visitor.zone);
    Ok(page(StatusCode::OK, Some(&visitor), "Log", &body))
}

/// The last number of the page before; 0 on the first page.
fn after(request: &HttpRequest) -> u32 {
    let after = parameter(request, "after").and_then(|after| query::number(&after));
    after.unwrap_or(0)
}
