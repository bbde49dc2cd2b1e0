//! The decision log and tool-call log, for analysts: `GET /v1/decisions[/{id}]`, `GET /v1/tool-invocations`,
//! `GET /v1/fields`.

use super::answer::Json;
use super::error::{Code, Error};
use super::request::{Ctx, Given, Id, List, RowsOf, Sent};
use crate::api::decisions::{AskedWith, DecisionDetail, DecisionPage, Erased, ErasureBody, ToolInvocationPage};
use crate::api::filter::FilterFields;
use crate::api::why::Why;
use crate::domain::ids::DecisionId;
use crate::http::routes::operations;
use crate::surfaces::decisions::ListQuery;

operations! {
    listDecisions = list: [];
    getDecision = get: [];
    getDecisionRequest = request: [];
    getDecisionWhy = why: [];
    listToolInvocations = tool_invocations: [];
    listFilterFields = fields: [];
    eraseTexts = erase: [Forbidden];
}

/// Lists decisions.
///
/// Latest first. A user sees their own rows; a service, or a user with the role `analyst`, those of the tenant.
#[utoipa::path(get, path = "/v1/decisions")]
pub(super) async fn list(
    ctx: Ctx,
    RowsOf(user): RowsOf,
    List(query, _): List<DecisionPage>,
) -> Result<Json<DecisionPage>, Error> {
    let query = ListQuery { user, ..query };
    Ok(Json(ctx.decisions.list(&ctx.caller, query).await?.into()))
}

/// Lists tool calls.
///
/// Latest first, every call of every decision. Visibility is the same as for decisions.
#[utoipa::path(get, path = "/v1/tool-invocations")]
pub(super) async fn tool_invocations(
    ctx: Ctx,
    RowsOf(user): RowsOf,
    List(query, _): List<ToolInvocationPage>,
) -> Result<Json<ToolInvocationPage>, Error> {
    let query = ListQuery { user, ..query };
    Ok(Json(ctx.decisions.tool_invocations(&ctx.caller, query).await?.into()))
}

/// Reads one decision with its tool calls.
///
/// A decision of another tenant or user answers 404, like a missing one.
#[utoipa::path(get, path = "/v1/decisions/{id}")]
pub(super) async fn get(ctx: Ctx, Id(id): Id<DecisionId>, RowsOf(user): RowsOf) -> Result<Json<DecisionDetail>, Error> {
    let found = ctx.decisions.get(&ctx.caller, user.as_ref(), id).await?;
    found.map(Json).ok_or_else(|| Code::NotFound.into())
}

/// Reads what the model was asked with at first.
///
/// Definition, functions, earlier conversation and message. A decision for which no model was asked answers 404.
#[utoipa::path(get, path = "/v1/decisions/{id}/request")]
pub(super) async fn request(ctx: Ctx, Id(id): Id<DecisionId>, RowsOf(user): RowsOf) -> Result<Json<AskedWith>, Error> {
    let found = ctx.decisions.asked_with(&ctx.caller, user.as_ref(), id).await?;
    found.map(Json).ok_or_else(|| Code::NotFound.into())
}

/// Explains why one decision was made as it was.
///
/// From the logs alone: the rules that matched each call, the limits that were reached, where the time went, how the
/// definition has changed since, and the rows of the audit log.
#[utoipa::path(get, path = "/v1/decisions/{id}/why")]
pub(super) async fn why(ctx: Ctx, Id(id): Id<DecisionId>, RowsOf(user): RowsOf) -> Result<Json<Why>, Error> {
    let found = ctx.decisions.why(&ctx.caller, user.as_ref(), id).await?;
    found.map(Json).ok_or_else(|| Code::NotFound.into())
}

/// Lists the fields that filters can ask for.
///
/// Of each list, with the operators, and whether an index finds the rows.
#[utoipa::path(get, path = "/v1/fields")]
pub(super) async fn fields(ctx: Ctx) -> Result<Json<FilterFields>, Error> {
    Ok(Json(ctx.decisions.filter_fields()))
}

/// Erases the texts of a user.
///
/// Messages, replies, arguments, results and reasons, in the logs and in the audit log, and ended runs, threads and
/// planning sessions as a whole. Rows of the logs, times, counts and the audit chain remain. Repeating it does no harm. Only
/// a service that names no user may ask for it.
#[utoipa::path(post, path = "/v1/erasures")]
pub(super) async fn erase(
    ctx: Ctx,
    RowsOf(user): RowsOf,
    Sent(given): Sent<ErasureBody>,
) -> Result<Json<Erased>, Error> {
    Ok(Json(
        ctx.decisions.erase(&ctx.caller, user.as_ref(), given.user_id).await?,
    ))
}

impl Given for ErasureBody {
    const ABOUT: &'static str = "Whose texts to erase.";
    const EXAMPLE: &'static str = r#"{"user_id": "alice"}"#;
}
