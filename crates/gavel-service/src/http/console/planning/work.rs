//! What was done for a session: the steps of one task, and all actions.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;

use super::super::super::planning::work::Task;
use super::super::super::query;
use super::super::super::request::{Id, Open};
use super::super::session::Visitor;
use super::super::view::planning::task::task_page;
use super::super::{Parameters, Turned, page};
use super::path;
use crate::domain::ids::PlanningSessionId;
use crate::http::console::view::planning::log_page;

/// Steps per page.
const STEPS: usize = 25;
/// Actions per page.
const ACTIONS: usize = 100;

pub(crate) async fn task(
    edge: Open,
    visitor: Visitor,
    Id(Task(session, task)): Id<Task>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let planning = &edge.planning;
    let found = planning.task(&visitor.caller, visitor.reads.as_ref(), session, (task, after(&given)));
    let mut found = found.await?;
    let more = found.react_history.len() > STEPS;
    found.react_history.truncate(STEPS);
    let body = task_page(&found, &path(session), more, visitor.zone);
    Ok(page(StatusCode::OK, Some(&visitor), &found.task.title, &body))
}

pub(crate) async fn log(
    edge: Open,
    visitor: Visitor,
    Id(session): Id<PlanningSessionId>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let planning = &edge.planning;
    let range = (after(&given), ACTIONS + 1);
    let found = planning.log(&visitor.caller, visitor.reads.as_ref(), session, range);
    let mut found = found.await?;
    let more = found.len() > ACTIONS;
    found.truncate(ACTIONS);
    let body = log_page(&found, &path(session), more, visitor.zone);
    Ok(page(StatusCode::OK, Some(&visitor), "Log", &body))
}

/// The last number of the page before; 0 on the first page.
fn after(given: &Parameters) -> u32 {
    let after = given.get("after").and_then(|after| query::number(&after));
    after.unwrap_or(0)
}
