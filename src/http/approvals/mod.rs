//! Approvals: pending approval requests, their resolutions, in-doubt actions, and grants.

mod error;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use tracing::Instrument;
use utoipa::ToSchema;

use super::agents::response;
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::openapi::params::{self, ActingUser, CamelPaging, KeyOfAnswer, LATEST_FIRST, OLDEST_FIRST, Prefer};
use super::openapi::schemas::page;
use super::page;
use super::routes::Route;
use super::runs::{Patience, key};
use super::spelling::Spelling;
use super::{State, acting, body, query};
use crate::domain::action::{ActionStatus, Grant, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, GrantId};
use crate::surfaces::approvals::{ActionInDoubt, ActionQuery, Answer, MAX_REASON, PendingApproval, Which};
use crate::surfaces::decisions::Page;
use crate::surfaces::request::FieldError;
use crate::surfaces::threads::RunAnswer;

page! {
    /// A page of pending approval requests.
    #[serde(rename_all = "camelCase")]
    ApprovalPage { approvals: PendingApproval }
}

page! {
    /// A page of in-doubt actions.
    #[serde(rename_all = "camelCase")]
    ActionInDoubtPage { actions: ActionInDoubt }
}

page! {
    /// A page of grants.
    #[serde(rename_all = "camelCase")]
    GrantPage { grants: Grant }
}

/// Lists pending approval requests.
///
/// Oldest first; your own, or all of the tenant with the role `approver`.
#[utoipa::path(
    get,
    path = "/api/agent/approvals/pending",
    operation_id = "listPendingApprovals",
    tag = "approvals",
    params(
        ActingUser,
        CamelPaging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("tool, user_id, agent_id, policy, created_at"),
            example = "tool = \"gmail_send\""
        ),
        ("orderBy" = Option<String>, Query, description = OLDEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = ApprovalPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::Forbidden, Code::QueryTooSlow])))
)]
pub(super) async fn pending(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::PendingApprovals));
    exchange.finish(waiting(&state, &request).await)
}

/// Resolves an approval.
///
/// If several approvers decide, the first decision wins; repeating it as the same caller returns it again. An approval
/// covers exactly these arguments, of the tool as it was, once. `approve_and_always_allow_recipient` also allows later
/// calls of the tool to exactly the same recipients. An approved action is executed at once. The agent continues when
/// all its approval requests are resolved; the response waits for it in a thread, or with `Prefer: wait=N`.
#[utoipa::path(
    post,
    path = "/api/agent/approvals/resolve",
    operation_id = "resolveApproval",
    tag = "approvals",
    params(ActingUser, Prefer, KeyOfAnswer),
    request_body(
        content = ResolveBody,
        description = "Your decision.",
        example = json!({"approvalId": "019300aa-0000-7000-8000-000000000000", "decision": "approve_once"})
    ),
    responses((status = 200, description = "The run in its current state.", body = RunAnswer)),
    extensions(("x-problems" = json!([
        Code::UserMismatch, Code::Forbidden, Code::NotFound, Code::AlreadyResolved, Code::NotGrantable,
        Code::IdempotencyKeyReused, Code::OutcomeUnrecorded, Code::RunUnreadable
    ])))
)]
pub(super) async fn resolve(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ResolveApproval));
    let answer = resolved(&state, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

/// Lists in-doubt actions.
///
/// These actions were started and their outcome is unknown; gavel does not repeat them. Check where the effect would be
/// visible, and settle each one. Oldest first; your own, or all of the tenant with the role `approver`.
#[utoipa::path(
    get,
    path = "/api/agent/actions/in-doubt",
    operation_id = "listActionsInDoubt",
    tag = "approvals",
    params(
        ActingUser,
        CamelPaging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("tool, user_id, agent_id, policy, created_at"),
            example = "tool = \"gmail_send\""
        ),
        ("orderBy" = Option<String>, Query, description = OLDEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = ActionInDoubtPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::Forbidden, Code::QueryTooSlow])))
)]
pub(super) async fn in_doubt(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ActionsInDoubt));
    exchange.finish(actions_in_doubt(&state, &request).await)
}

/// Settles an in-doubt action.
///
/// Possible after its run has ended; in a planning session, also while it waits for the settlement. For a paused run
/// that was triggered, settle it in the body of the resume.
#[utoipa::path(
    post,
    path = "/api/agent/actions/{id}/settle",
    operation_id = "settleAction",
    tag = "approvals",
    params(("id" = String, Path, description = "The action's id."), ActingUser, KeyOfAnswer),
    request_body(
        content = SettleBody,
        description = "The outcome you found.",
        example = json!({"happened": true})
    ),
    responses((status = 200, description = "The run, with the current state of the action.", body = RunAnswer)),
    extensions(("x-problems" = json!([
        Code::UserMismatch, Code::Forbidden, Code::NotFound, Code::NotInDoubt, Code::RunInProgress, Code::PartOfRun,
        Code::IdempotencyKeyReused, Code::OutcomeUnrecorded, Code::RunUnreadable
    ])))
)]
pub(super) async fn settle(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::SettleAction));
    exchange.finish(settled(&state, &request, payload).await)
}

/// Lists grants.
///
/// Your own, or all of the tenant with the role `approver`; including revoked ones.
#[utoipa::path(
    get,
    path = "/api/agent/grants",
    operation_id = "listGrants",
    tag = "approvals",
    params(
        ActingUser,
        CamelPaging,
        (
            "filter" = Option<String>,
            Query,
            description = params::filter("grant_id, tool, user_id, created_at"),
            example = "tool = \"gmail_send\""
        ),
        ("orderBy" = Option<String>, Query, description = LATEST_FIRST),
    ),
    responses((status = 200, description = "The response.", body = GrantPage)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::Forbidden, Code::QueryTooSlow])))
)]
pub(super) async fn grants(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Grants));
    exchange.finish(all_grants(&state, &request).await)
}

/// Reads one grant.
///
/// Your own, or any of the tenant with the role `approver`; also a revoked one.
#[utoipa::path(
    get,
    path = "/api/agent/grants/{id}",
    operation_id = "getGrant",
    tag = "approvals",
    params(("id" = String, Path, description = "The grant's id."), ActingUser),
    responses((status = 200, description = "The response.", body = Grant)),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::Forbidden, Code::NotFound, Code::QueryTooSlow])))
)]
pub(super) async fn grant(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Grant));
    exchange.finish(one_grant(&state, &request).await)
}

/// Revokes a grant.
///
/// Applies to every call that the policy has not decided yet.
#[utoipa::path(
    delete,
    path = "/api/agent/grants/{id}",
    operation_id = "revokeGrant",
    tag = "approvals",
    params(("id" = String, Path, description = "The grant's id."), ActingUser),
    responses((status = 204, description = "The grant is revoked.")),
    extensions(("x-problems" = json!([Code::UserMismatch, Code::Forbidden, Code::NotFound])))
)]
pub(super) async fn revoke(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::RevokeGrant));
    exchange.finish(revoked(&state, &request).await)
}

/// `POST /api/agent/approvals/resolve`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ResolveBody {
    /// The approval request to resolve.
    #[schema(value_type = String, format = "uuid")]
    pub approval_id: ApprovalId,
    /// The decision of the approver.
    pub decision: Resolution,
    /// The reason of the decision; the agent receives it after a rejection.
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
}

/// `POST /api/agent/actions/{id}/settle`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    /// Whether the action had its effect.
    pub happened: bool,
}

async fn waiting(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let query = of_state(ActionStatus::AwaitingConfirmation, request)?;
    let page = state.edge.approvals.list(&caller, user, query).await?;
    let tasks = state.edge.approvals.tasks(&caller, &page.items).await?;
    let now_us = state.edge.runs.now_us();
    let pending = |action| PendingApproval::of(action, &tasks, now_us);
    let page = Page {
        items: page.items.into_iter().filter_map(pending).collect(),
        next_page_token: page.next_page_token,
    };
    Ok(page::list(Spelling::Camel, "approvals", &page))
}

/// The requested page of actions in a state.
fn of_state(status: ActionStatus, request: &HttpRequest) -> Result<ActionQuery, Error> {
    Ok(ActionQuery {
        which: Which::In(status),
        tool: None,
        of_user: None,
        list: query::list(Spelling::Camel, request.query_string())?,
    })
}

/// Returns the run after its next stop. A run outside a thread may take hours, so it is waited for only on request.
async fn resolved(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let patience = Patience::of(request.headers())?;
    let body = body::read(state, request, payload, &caller).await?;
    let given: ResolveBody = body::parse(
        &body,
        "{\"approvalId\", \"decision\": \"reject\" | \"approve_once\" | \"approve_and_always_allow_recipient\", \"reason\"?}",
    )?;
    if given.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        let detail = format!("is longer than {MAX_REASON} bytes");
        return Err(Error::Invalid(vec![FieldError::new("/reason", detail)]));
    }
    let user = acting::user(state, &caller, request)?;
    let answer = Answer {
        approval: given.approval_id,
        resolution: given.decision,
        reason: given.reason,
        key: key(request, &caller, user.as_ref(), &body)?,
    };
    let answered = state.edge.approvals.resolve(&caller, user, answer).await?;
    let (runs, run) = (&state.edge.runs, answered.run);
    let rests = async {
        if let Err(error) = runs.rests(&caller, run).await {
            tracing::warn!(run_id = %run, %error, "waiting for a run after its approval failed");
        }
    };
    match patience {
        Patience::All if answered.thread.is_some() => rests.await,
        // Waiting is a convenience, so a timeout does not change the response.
        Patience::Some(most) => drop(tokio::time::timeout(most, rests).await),
        Patience::All | Patience::None => {}
    }
    let run = state.edge.threads.after(&caller, run).await?;
    Ok(response(StatusCode::OK, &run))
}

async fn actions_in_doubt(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let query = of_state(ActionStatus::InDoubt, request)?;
    let page = state.edge.approvals.list(&caller, user, query).await?;
    let tasks = state.edge.approvals.tasks(&caller, &page.items).await?;
    let page = page.map(|action| ActionInDoubt::of(action, &tasks));
    Ok(page::list(Spelling::Camel, "actions", &page))
}

async fn settled(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let body = body::read(state, request, payload, &caller).await?;
    let given: SettleBody = body::parse(&body, "{\"happened\": true or false}")?;
    let user = acting::user(state, &caller, request)?;
    let id = request
        .match_info()
        .get("id")
        .and_then(ActionId::parse)
        .ok_or(Error::NotFound)?;
    let key = key(request, &caller, user.as_ref(), &body)?;
    let settled = state
        .edge
        .approvals
        .settle(&caller, user, id, given.happened, key.as_ref());
    let settled = settled.await?;
    let run = state.edge.threads.after(&caller, settled.run).await?;
    Ok(response(StatusCode::OK, &run))
}

async fn all_grants(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let query = query::list(Spelling::Camel, request.query_string())?;
    let page = state.edge.approvals.grants(&caller, user, query).await?;
    Ok(page::list(Spelling::Camel, "grants", &page))
}

async fn one_grant(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let grant = state.edge.approvals.grant(&caller, user, grant_id(request)?).await?;
    Ok(response(StatusCode::OK, &grant))
}

async fn revoked(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    state.edge.approvals.revoke(&caller, user, grant_id(request)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The grant id of the path; an invalid id is not found, like an id of another tenant or user.
fn grant_id(request: &HttpRequest) -> Result<GrantId, Error> {
    let id = request.match_info().get("id").and_then(GrantId::parse);
    id.ok_or(Error::NotFound)
}
