//! Approvals: pending approval requests, their resolutions, in-doubt actions, and grants.

use crate::api::approvals::{ActionInDoubtPage, ApprovalPage, Grant, GrantPage, ResolveBody, SettleBody};
use crate::api::threads::RunAnswer;
use crate::api::why::ActionWhy;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{ActionId, GrantId};
use crate::http::answer::{Json, NoContent};
use crate::http::body;
use crate::http::error::Error;
use crate::http::headers::Patience;
use crate::http::request::{Acting, Ctx, Given, Id, Key, List, Sent};
use crate::http::routes::operations;
use crate::surfaces::approvals::{self, Which};
use crate::surfaces::decisions::Page;

operations! {
    listPendingApprovals = pending: [Forbidden];
    resolveApproval = resolve:
        [Forbidden, NotFound, AlreadyResolved, NotGrantable, IdempotencyKeyReused, OutcomeUnrecorded, RunUnreadable];
    listActionsInDoubt = in_doubt: [Forbidden];
    getActionWhy = why: [Forbidden];
    settleAction = settle:
        [Forbidden, NotInDoubt, RunInProgress, PartOfRun, IdempotencyKeyReused, OutcomeUnrecorded, RunUnreadable];
    listGrants = grants: [Forbidden];
    getGrant = grant: [Forbidden];
    revokeGrant = revoke: [Forbidden];
}

/// Lists pending approval requests.
///
/// Oldest first; your own, or all of the tenant with the role `approver`.
#[utoipa::path(get, path = "/api/agent/approvals/pending")]
pub(super) async fn pending(
    ctx: Ctx,
    Acting(user): Acting,
    List(query, _): List<ApprovalPage>,
) -> Result<Json<ApprovalPage>, Error> {
    let which = Which::In(ActionStatus::AwaitingConfirmation);
    let page = ctx.approvals.list(&ctx.caller, user, which, query).await?;
    let tasks = ctx.approvals.tasks(&ctx.caller, &page.items).await?;
    let now_us = ctx.runs.now_us();
    let pending = |action| approvals::pending(action, &tasks, now_us);
    let page = Page {
        items: page.items.into_iter().filter_map(pending).collect(),
        next_page_token: page.next_page_token,
    };
    Ok(Json(page.into()))
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
    responses((status = 200, description = "The run in its current state."))
)]
pub(super) async fn resolve(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<ResolveBody>,
    Acting(user): Acting,
    Key(key): Key,
) -> Result<Json<RunAnswer>, Error> {
    let reason = body::reason(given.reason, "/reason")?;
    let answer = ResolveBody { reason, ..given };
    let answered = ctx.approvals.resolve(&ctx.caller, user, &answer, key.as_ref()).await?;
    let run = answered.run;
    let rests = async {
        if let Err(error) = ctx.runs.rests(&ctx.caller, run).await {
            tracing::warn!(run_id = %run, %error, "waiting for a run after its approval failed");
        }
    };
    match patience {
        // A run outside a thread may take hours, so it is waited for only on request.
        Patience::All if answered.thread.is_some() => rests.await,
        // Waiting is a convenience, so a timeout does not change the response.
        Patience::Some(most) => drop(tokio::time::timeout(most, rests).await),
        Patience::All | Patience::None => {}
    }
    Ok(Json(ctx.threads.after(&ctx.caller, run).await?))
}

/// Lists in-doubt actions.
///
/// These actions were started and their outcome is unknown; gavel does not repeat them. Check where the effect would be
/// visible, and settle each one. Oldest first; your own, or all of the tenant with the role `approver`.
#[utoipa::path(get, path = "/api/agent/actions/in-doubt")]
pub(super) async fn in_doubt(
    ctx: Ctx,
    Acting(user): Acting,
    List(query, _): List<ActionInDoubtPage>,
) -> Result<Json<ActionInDoubtPage>, Error> {
    let which = Which::In(ActionStatus::InDoubt);
    let page = ctx.approvals.list(&ctx.caller, user, which, query).await?;
    let tasks = ctx.approvals.tasks(&ctx.caller, &page.items).await?;
    Ok(Json(page.map(|action| approvals::in_doubt(action, &tasks)).into()))
}

/// Explains why an action needed a person, or did not.
///
/// From the logs alone. The id is that of the action, or of its approval request.
#[utoipa::path(get, path = "/api/agent/actions/{id}/why")]
pub(super) async fn why(ctx: Ctx, Acting(user): Acting, Id(id): Id<ActionId>) -> Result<Json<ActionWhy>, Error> {
    Ok(Json(ctx.approvals.why(&ctx.caller, user, id).await?))
}

/// Settles an in-doubt action.
///
/// Possible after its run has ended; in a planning session, also while it waits for the settlement. For a paused run
/// that was triggered, settle it in the body of the resume.
#[utoipa::path(
    post,
    path = "/api/agent/actions/{id}/settle",
    responses((status = 200, description = "The run, with the current state of the action."))
)]
pub(super) async fn settle(
    ctx: Ctx,
    Sent(given): Sent<SettleBody>,
    Acting(user): Acting,
    Id(id): Id<ActionId>,
    Key(key): Key,
) -> Result<Json<RunAnswer>, Error> {
    let approvals = &ctx.approvals;
    let settled = approvals
        .settle(&ctx.caller, user, id, given.happened, key.as_ref())
        .await?;
    Ok(Json(ctx.threads.after(&ctx.caller, settled.run).await?))
}

/// Lists grants.
///
/// Your own, or all of the tenant with the role `approver`; including revoked ones.
#[utoipa::path(get, path = "/api/agent/grants")]
pub(super) async fn grants(
    ctx: Ctx,
    Acting(user): Acting,
    List(query, _): List<GrantPage>,
) -> Result<Json<GrantPage>, Error> {
    Ok(Json(ctx.approvals.grants(&ctx.caller, user, query).await?.into()))
}

/// Reads one grant.
///
/// Your own, or any of the tenant with the role `approver`; also a revoked one.
#[utoipa::path(get, path = "/api/agent/grants/{id}")]
pub(super) async fn grant(ctx: Ctx, Acting(user): Acting, Id(id): Id<GrantId>) -> Result<Json<Grant>, Error> {
    Ok(Json(ctx.approvals.grant(&ctx.caller, user, id).await?))
}

/// Revokes a grant.
///
/// Applies to every call that the policy has not decided yet.
#[utoipa::path(
    delete,
    path = "/api/agent/grants/{id}",
    responses((status = 204, description = "The grant is revoked."))
)]
pub(super) async fn revoke(ctx: Ctx, Acting(user): Acting, Id(id): Id<GrantId>) -> Result<NoContent, Error> {
    ctx.approvals.revoke(&ctx.caller, user, id).await?;
    Ok(NoContent)
}

impl Given for ResolveBody {
    const ABOUT: &'static str = "Your decision.";
    const EXAMPLE: &'static str = r#"{
        "approvalId": "019300aa-0000-7000-8000-000000000000",
        "decision": "approve_once"
    }"#;
}

impl Given for SettleBody {
    const ABOUT: &'static str = "The outcome you found.";
    const EXAMPLE: &'static str = r#"{"happened": true}"#;
}
