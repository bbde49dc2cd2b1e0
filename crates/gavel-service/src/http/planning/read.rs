//! Reads planning sessions, and the versions of their plans.

use crate::api::planning::{PlanVersionPage, PlanningSessionPage};
use utoipa::IntoParams;

use crate::api::Page;
use crate::api::planning::{Session, Version};
use crate::domain::ids::PlanningSessionId;
use crate::http::answer::Json;
use crate::http::error::Error;
use crate::http::query::{self, Fields, Parameters};
use crate::http::request::{Acting, Ctx, Id, List, Named, Paged, Query};
use crate::http::route::Path;

/// The most versions of one answer, each with its whole plan.
const MOST_VERSIONS: u32 = 50;

/// Lists planning sessions.
///
/// Latest first. A user sees only their own; a service that names no user sees those of its tenant.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "listPlanningSessions",
    tag = "planning sessions"
)]
pub(crate) async fn list(
    ctx: Ctx,
    List(query, _): List<PlanningSessionPage>,
    Acting(user): Acting,
) -> Result<Json<PlanningSessionPage>, Error> {
    Ok(Json(ctx.planning.list(&ctx.caller, user.as_ref(), query).await?.into()))
}

/// How a session is shown.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct View {
    /// `raw`: also `rawPlan`, the plan as the JSON text that is stored.
    #[param(rename = "view", value_type = Option<String>)]
    is_raw: bool,
}

/// `view=raw`: also the stored text.
pub(super) fn is_raw(fields: &mut Fields<'_>) -> bool {
    fields
        .take("view", "raw", |view| (view == "raw").then_some(()))
        .is_some()
}

impl Parameters for View {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { is_raw: is_raw(fields) }
    }
}

/// Reads a planning session.
///
/// With the current version of its plan. A session of another user answers 404, like a missing one.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}",
    operation_id = "getPlanningSession",
    tag = "planning sessions"
)]
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
    operation_id = "listPlanVersions",
    tag = "planning sessions",
    responses((status = 200, description = "At most 50 versions."))
)]
pub(crate) async fn versions(
    ctx: Ctx,
    Paged(query): Paged,
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
pub(super) fn numbered<T>(mut items: Vec<T>, most: usize, number: impl FnOnce(&T) -> String) -> Page<T> {
    let has_more = items.len() > most;
    items.truncate(most);
    let next_page_token = items.last().filter(|_| has_more).map(number);
    Page { items, next_page_token }
}

/// A version of the plan of a session.
pub(crate) struct PlanVersion(PlanningSessionId, u32);

impl Named for PlanVersion {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[("id", "The session's id."), ("version", "1, 2, 3 …")];

    fn parse(path: &Path<'_>) -> Option<Self> {
        let session = <PlanningSessionId as Named>::parse(path)?;
        Some(Self(session, query::number(path.get("version"))?))
    }

    fn missing(path: &Path<'_>) -> String {
        format!(
            "There is no version {} of the plan of session {}, or the session belongs to another user.",
            path.quoted("version"),
            path.quoted("id")
        )
    }
}

/// Reads one version of a plan.
///
/// Also one that is no longer current.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/history/{version}",
    operation_id = "getPlanVersion",
    tag = "planning sessions"
)]
pub(crate) async fn version(
    ctx: Ctx,
    Acting(user): Acting,
    Id(PlanVersion(session, number)): Id<PlanVersion>,
) -> Result<Json<Version>, Error> {
    let before = number.checked_sub(1).ok_or(Error::NotFound)?;
    let found = ctx.planning.versions(&ctx.caller, user.as_ref(), session, (before, 1));
    let version = found.await?.into_iter().find(|version| version.version == number);
    version.map(Json).ok_or(Error::NotFound)
}
