//! Reads planning sessions: versions of their plans, what was done, and events.

use std::ops::ControlFlow;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Page;
use crate::api::events::{Event, RunEvent};
use crate::api::planning::{
    PlanVersionPage, PlanningLogPage, PlanningSessionPage, Session, SessionEvent, TaskDetail, Version,
};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskId;
use crate::http::answer::Json;
use crate::http::error::{AgentProblem, Code, Error};
use crate::http::openapi::lines::{Union, line};
use crate::http::openapi::{in_query, string, whole};
use crate::http::query::{self, Fields, Parameters};
use crate::http::request::{Acting, Ctx, Id, List, Named, Paged, Query, Room};
use crate::http::routes::{Path, operations};
use crate::http::spelling;
use crate::http::stream::{After, Failed, Framing, Lines, Out, Place, Silent, Stream};
use crate::surfaces::planning::{EventId, SessionLine, Watched};
use crate::surfaces::runs::Watch;

operations! {
    listPlanningSessions = list: [];
    getPlanningSession = get: [];
    listPlanVersions = versions: [];
    getPlanVersion = version: [];
    getPlanTask = task: [];
    listPlanningActions = log: [];
    watchPlanningSession = follow: [];
}

/// The most versions of one answer, each with its whole plan.
const MOST_VERSIONS: u32 = 50;

/// Lists planning sessions.
///
/// Latest first. A user sees only their own; a service that names no user sees those of its tenant.
#[utoipa::path(get, path = "/v1/sessions")]
pub(crate) async fn list(
    ctx: Ctx,
    List(query, _): List<PlanningSessionPage>,
    Acting(user): Acting,
) -> Result<Json<PlanningSessionPage>, Error> {
    Ok(Json(ctx.planning.list(&ctx.caller, user.as_ref(), query).await?.into()))
}

/// How a session is shown.
pub(crate) struct View {
    is_raw: bool,
}

impl Parameters for View {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            is_raw: is_raw(
                fields,
                "`raw`: also `rawPlan`, the plan as the JSON text that is stored.",
            ),
        }
    }
}

/// `view=raw`: also the stored text.
fn is_raw(fields: &mut Fields<'_>, about: &str) -> bool {
    let raw = |view: &str| (view == "raw").then_some(());
    fields.take("view", || in_query(about, string()), "raw", raw).is_some()
}

/// Reads a planning session.
///
/// With the current version of its plan. A session of another user answers 404, like a missing one.
#[utoipa::path(get, path = "/v1/sessions/{id}")]
pub(crate) async fn get(
    ctx: Ctx,
    Query(View { is_raw }): Query<View>,
    Acting(user): Acting,
    Id(id): Id<PlanningSessionId>,
) -> Result<Json<Session>, Error> {
    let session = ctx.planning.session(&ctx.caller, user.as_ref(), id).await?;
    Ok(Json(if is_raw { session.raw() } else { session }))
}

/// Lists the versions of a plan.
///
/// Oldest first, at most 50 at once, each with its author, the time, the reason and the whole plan. A version never
/// changes.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/history",
    responses((status = 200, description = "At most 50 versions."))
)]
pub(crate) async fn versions(
    ctx: Ctx,
    Query(Paged(query)): Query<Paged>,
    Acting(user): Acting,
    Id(id): Id<PlanningSessionId>,
) -> Result<Json<PlanVersionPage>, Error> {
    let (after, most) = (
        query::after(query.page_token.as_deref())?,
        query.page_size.min(MOST_VERSIONS),
    );
    // One more shows whether others follow.
    let versions = ctx.planning.versions(&ctx.caller, user.as_ref(), id, (after, most + 1));
    let page = numbered(versions.await?, most as usize, |version| version.version.to_string());
    Ok(Json(page.into()))
}

/// The first `most` of these rows, and the number of the last one as token if there are more.
pub(crate) fn numbered<T>(mut items: Vec<T>, most: usize, number: impl FnOnce(&T) -> String) -> Page<T> {
    let has_more = items.len() > most;
    items.truncate(most);
    let next_page_token = items.last().filter(|_| has_more).map(number);
    Page { items, next_page_token }
}

/// A version of the plan of a session.
pub(crate) struct PlanVersion(PlanningSessionId, u32);

impl Named for PlanVersion {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[("id", "The session's id."), ("version", "1, 2, 3 …")];
    const MISSING: &'static str =
        "There is no version {version} of the plan of session {id}, or the session belongs to another user.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        let session = <PlanningSessionId as Named>::parse(path)?;
        Some(Self(session, query::number(path.get("version"))?))
    }
}

/// Reads one version of a plan.
///
/// Also one that is no longer current.
#[utoipa::path(get, path = "/v1/sessions/{id}/history/{version}")]
pub(crate) async fn version(
    ctx: Ctx,
    Acting(user): Acting,
    Id(PlanVersion(session, number)): Id<PlanVersion>,
) -> Result<Json<Version>, Error> {
    let before = number.checked_sub(1).ok_or(Code::NotFound)?;
    let found = ctx.planning.versions(&ctx.caller, user.as_ref(), session, (before, 1));
    let version = found.await?.into_iter().find(|version| version.version == number);
    version.map(Json).ok_or_else(|| Code::NotFound.into())
}

/// A task of a session.
pub(crate) struct Task(pub(crate) PlanningSessionId, pub(crate) TaskId);

impl Named for Task {
    const SEGMENTS: &'static [(&'static str, &'static str)] =
        &[("id", "The session's id."), ("taskId", "The task's id, such as `t1`.")];
    const MISSING: &'static str = "There is no task {taskId} in session {id}, or the session belongs to another user.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        let session = <PlanningSessionId as Named>::parse(path)?;
        Some(Self(session, TaskId::parse(path.get("taskId"))?))
    }
}

/// How a task is shown.
pub(crate) struct TaskView {
    is_raw: bool,
    after: Option<u32>,
}

impl Parameters for TaskView {
    fn read(fields: &mut Fields<'_>) -> Self {
        let after = || in_query("Only the steps after this number.", whole(0));
        Self {
            is_raw: is_raw(fields, "`raw`: also `rawReactHistory`, the history as JSON text."),
            after: fields.take("after", after, "the number of a step, such as 3", query::number),
        }
    }
}

/// Reads a task with its history.
///
/// A task of the current plan, with each step: what the model meant to do, its call, the result, and what it concluded.
/// An error is an observation `{"error": {"code", "message"}}`; while a call waits or runs the observation is null.
#[utoipa::path(get, path = "/v1/sessions/{id}/tasks/{taskId}")]
pub(crate) async fn task(
    ctx: Ctx,
    Query(TaskView { is_raw, after }): Query<TaskView>,
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
#[utoipa::path(get, path = "/v1/sessions/{id}/log")]
pub(crate) async fn log(
    ctx: Ctx,
    Query(Paged(query)): Query<Paged>,
    Acting(user): Acting,
    Id(id): Id<PlanningSessionId>,
) -> Result<Json<PlanningLogPage>, Error> {
    let (after, most) = (query::after(query.page_token.as_deref())?, query.page_size as usize);
    // One more shows whether others follow.
    let actions = ctx.planning.log(&ctx.caller, user.as_ref(), id, (after, most + 1));
    let page = numbered(actions.await?, most, |action| action.n.to_string());
    Ok(Json(page.into()))
}

line! {
    /// A line of a planning session's events: an event, or the problem that ends the stream.
    PlanningLine = Union::default().and_camel::<Line<'_, SessionEvent>>("Planning").and_camel::<Line<'_, Event>>("Planning").and::<Failed<AgentProblem<'_>>>("Agent").and::<Silent>("")
}

impl Place for EventId {
    const EXAMPLE: &'static str = "2.17.0";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

/// Watches the events of a planning session.
///
/// From its first event, or from the one after `Last-Event-ID`, until the session has ended: the runs that planned, the
/// edits, and the work on the confirmed plan, in this order. While the session waits for its confirmation, the stream
/// remains open. The last event is `result`; a later request gets 204. An id is `RUN.POSITION.PART`: the same event has
/// the same id at every replica, and ids only grow. Text that arrives (`delta`, `thought`, and `reset` beside them) is
/// sent by the replica that does the work, is not stored, and has the id of the event before it.
#[utoipa::path(get, path = "/v1/sessions/{id}/events")]
pub(crate) async fn follow(
    ctx: Ctx,
    Acting(user): Acting,
    after: After<EventId>,
    Room(share): Room,
    Id(session): Id<PlanningSessionId>,
    form: Framing,
) -> Result<Option<Stream<SessionLines>>, Error> {
    let share = share?;
    let watched = ctx.planning.watch(&ctx.caller, user.as_ref(), session, after.place);
    match watched.await? {
        Watched::Events(watch) => Ok(Some(Stream::new(form, Some(share), SessionLines(watch)))),
        Watched::Reported => Ok(None),
        Watched::UnknownEvent => Err(after.unknown("is not the id of an event of this session")),
    }
}

/// The events of a session.
pub(crate) struct SessionLines(Watch<SessionLine>);

/// A line: the event, its id for NDJSON readers, and its place in the work on the plan.
#[derive(Serialize, ToSchema)]
struct Line<'a, E> {
    /// The place of this event in the stream.
    #[schema(example = "2.17.0")]
    id: &'a str,
    /// The task that it belongs to; null if it belongs to none.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    task_id: Option<TaskId>,
    /// The step of the task: 1, 2, 3 …
    #[schema(required = true)]
    step: Option<u32>,
    #[serde(flatten)]
    #[schema(inline)]
    event: &'a RunEvent<E>,
}

impl Lines for SessionLines {
    const RESUMABLE: bool = true;
    type Line = PlanningLine;

    async fn next(&mut self, out: &mut Out<'_>) -> Result<ControlFlow<()>, Error> {
        let Some(line) = self.0.next().await? else {
            return Ok(ControlFlow::Break(()));
        };
        let id = line.id.to_string();
        let line = Line {
            id: &id,
            task_id: line.task,
            step: line.step,
            event: &line.event,
        };
        out.form.object(Some(&id), &spelling::camel(&line), out.bytes);
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::spelling::Spelling;

    #[test]
    fn a_view_and_a_step_are_read_and_nothing_else_is_accepted() {
        let view = |query| {
            let mut fields = Fields::new(Spelling::Camel, query);
            let TaskView { is_raw, after } = TaskView::read(&mut fields);
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
