//! Reads what was done for a plan: the steps of a task, and the log of all actions.

use crate::api::planning::PlanningLogPage;
use utoipa::IntoParams;

use super::read::{is_raw, numbered};
use crate::api::planning::TaskDetail;
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskId;
use crate::http::answer::Json;
use crate::http::error::Error;
use crate::http::query::{self, Fields, Parameters};
use crate::http::request::{Acting, Ctx, Id, Named, Paged, Query};
use crate::http::route::Path;

/// A task of a session.
pub(crate) struct Task(pub(crate) PlanningSessionId, pub(crate) TaskId);

impl Named for Task {
    const SEGMENTS: &'static [(&'static str, &'static str)] =
        &[("id", "The session's id."), ("taskId", "The task's id, such as `t1`.")];

    fn parse(path: &Path<'_>) -> Option<Self> {
        let session = <PlanningSessionId as Named>::parse(path)?;
        Some(Self(session, TaskId::parse(path.get("taskId"))?))
    }

    fn missing(path: &Path<'_>) -> String {
        format!(
            "There is no task {} in session {}, or the session belongs to another user.",
            path.quoted("taskId"),
            path.quoted("id")
        )
    }
}

/// How a task is shown.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct View {
    /// `raw`: also `rawReactHistory`, the history as JSON text.
    #[param(rename = "view", value_type = Option<String>)]
    is_raw: bool,
    /// Only the steps after this number.
    after: Option<u32>,
}

impl Parameters for View {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            is_raw: is_raw(fields),
            after: fields.take("after", "the number of a step, such as 3", query::number),
        }
    }
}

/// Reads a task with its history.
///
/// A task of the current plan, with each step: what the model meant to do, its call, the result, and what it concluded.
/// An error is an observation `{"error": {"code", "message"}}`; while a call waits or runs the observation is null.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/tasks/{taskId}",
    operation_id = "getPlanTask",
    tag = "planning sessions"
)]
pub(crate) async fn task(
    ctx: Ctx,
    Query(View { is_raw, after }): Query<View>,
    Acting(user): Acting,
    Id(Task(session, task)): Id<Task>,
) -> Result<Json<TaskDetail>, Error> {
    let which = (task, after.unwrap_or_default());
    let found = ctx.planning.task(&ctx.caller, user.as_ref(), session, which).await?;
    Ok(Json(if is_raw { found.raw() } else { found }))
}

/// Lists the actions of a planning session.
///
/// Every tool call of every task, in order, with how it ended and what allowed it. Results are in the history of each
/// task.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/log",
    operation_id = "listPlanningActions",
    tag = "planning sessions"
)]
pub(crate) async fn log(
    ctx: Ctx,
    Paged(query): Paged,
    Acting(user): Acting,
    Id(id): Id<PlanningSessionId>,
) -> Result<Json<PlanningLogPage>, Error> {
    let (after, most) = (query::after(query.page_token.as_deref())?, query.page_size as usize);
    // One more shows whether others follow.
    let actions = ctx.planning.log(&ctx.caller, user.as_ref(), id, (after, most + 1));
    let page = numbered(actions.await?, most, |action| action.n.to_string());
    Ok(Json(page.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_and_a_step_are_read_and_nothing_else_is_accepted() {
        let view = |query| {
            let mut fields = Fields::new(query);
            let View { is_raw, after } = View::read(&mut fields);
            fields.end().map(|()| (is_raw, after.unwrap_or_default()))
        };
        assert_eq!(view("").unwrap(), (false, 0));
        assert_eq!(view("view=raw&after=12").unwrap(), (true, 12));
        for invalid in [
            "view=full",
            "after=",
            "after=-1",
            "after=x",
            "page=2",
            "after=1&after=2",
        ] {
            assert!(view(invalid).is_err(), "{invalid}");
        }
    }
}
