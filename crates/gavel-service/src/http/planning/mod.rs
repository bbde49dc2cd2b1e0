//! Planning sessions: start and refine. `execute` confirms a plan, `change` edits it and cancels, `read` shows what there
//! is, and `work` what was done.

pub(super) mod change;
mod error;
pub(super) mod events;
pub(super) mod execute;
pub(super) mod read;
pub(super) mod work;

use actix_web::http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Preferred, Reply, Started};
use super::error::{Code, Error};
use super::patience::Patience;
use super::request::{Acting, Ctx, Given, Id, Meta, Sent, User};
use super::runs::time_zone;
use crate::api::planning::{RefineBody, Session, StartBody};
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::SessionStatus;
use crate::surfaces::planning::{BegunPlanning, RefinePlan, StartPlanning};
use error::unreadable;

impl Given for StartBody {
    const FORM: &'static str = r#"{"prompt", "repoUrl", "deadline", "timeZone"?}"#;
    const ABOUT: &'static str = "The goal.";

    fn example() -> Value {
        json!({
            "prompt": "Accept ISO weeks such as 2026-W48, with tests.",
            "repoUrl": "https://github.com/acme/dates",
            "deadline": "2026-11-21T18:00:00+01:00"
        })
    }
}

impl Given for RefineBody {
    const FORM: &'static str = r#"{"refinementPrompt"}"#;
    const ABOUT: &'static str = "What to change.";

    fn example() -> Value {
        json!({"refinementPrompt": "Write the tests first, and leave the README alone."})
    }
}

/// Starts a planning session.
///
/// gavel reads the repository and proposes a plan. Nothing of it is executed. The response waits for the plan; with
/// `Prefer: respond-async` it comes at once, with `Prefer: wait=N` after at most N seconds. The session reports the
/// outcome: 201 means that the planning has ended, not that it succeeded. A client that disconnects does not cancel it.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    operation_id = "startPlanning",
    tag = "planning sessions",
    responses(
        (status = 201, description = "The session, which has a plan or has failed; `Location` names it."),
        (status = 202, description = "The session, which has no plan yet; `Location` names it."),
    ),
    extensions(("x-problems" = json!([
        Code::Forbidden, Code::RepositoryNotAllowed, Code::TooManySessions, Code::AgentUnavailable
    ])))
)]
pub(super) async fn start(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<StartBody>,
    User(user): User,
    Meta(meta): Meta,
) -> Result<Preferred<Session>, Error> {
    let start = StartPlanning {
        prompt: given.prompt,
        repo_url: given.repo_url,
        deadline: given.deadline,
        time_zone: given.time_zone.map(|name| time_zone(&name, "/timeZone")).transpose()?,
        background: patience == Patience::None,
        meta,
    };
    let keyed = start.meta.idempotency.is_some();
    let begun = ctx.planning.start_planning(&ctx.caller, user, start).await?;
    wait(&ctx, begun, patience, keyed, StatusCode::CREATED).await
}

/// Refines a plan.
///
/// The model makes a new version of the whole plan from the goal, the current plan and all refinements so far. If that
/// fails, the current version remains, and `refinement` gives the reason. The response waits for the new version as
/// that of `POST /v1/sessions` does. Only a session with status `AWAITING_CONFIRMATION` can be refined.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/refine",
    operation_id = "refinePlan",
    tag = "planning sessions",
    responses(
        (status = 200, description = "The session, with the new version or the current one."),
        (status = 202, description = "The session, whose new version is being made; `Location` names it."),
    ),
    extensions(("x-problems" = json!([
        Code::PlanInProgress, Code::PlanLocked, Code::PlanChanged, Code::SessionOver, Code::DeadlinePassed,
        Code::TooManySessions, Code::AgentUnavailable
    ])))
)]
pub(super) async fn refine(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<RefineBody>,
    Acting(user): Acting,
    Id(session): Id<PlanningSessionId>,
    Meta(meta): Meta,
) -> Result<Preferred<Session>, Error> {
    let refine = RefinePlan {
        session,
        refinement_prompt: given.refinement_prompt,
        background: patience == Patience::None,
        meta,
    };
    let keyed = refine.meta.idempotency.is_some();
    let begun = ctx.planning.refine_plan(&ctx.caller, user.as_ref(), refine).await?;
    wait(&ctx, begun, patience, keyed, StatusCode::OK).await
}

/// Returns the session after its run has ended, or when the caller's waiting time is exhausted. `planned` is the status
/// in the first case; in the second it is 202.
async fn wait(
    ctx: &Ctx,
    mut begun: BegunPlanning,
    patience: Patience,
    keyed: bool,
    planned: StatusCode,
) -> Result<Preferred<Session>, Error> {
    let (planning, id, run) = (&ctx.planning, begun.session, begun.begun.run);
    let read = planning.session(&ctx.caller, None, id);
    let session = patience.wait_or(planning.wait(&ctx.caller, &mut begun), read);
    // The session exists: if it cannot be read now, the request must not be sent again.
    let session = session.await.map_err(|error| unreadable(&ctx.state, id, run, error))?;
    let status = match session.status {
        SessionStatus::Planning => StatusCode::ACCEPTED,
        _ => planned,
    };
    let path = path(session.session_id);
    Ok(Started::new(Reply::new(status, session).at(path), Some(&begun.begun), keyed).preferred(patience))
}

fn path(session: PlanningSessionId) -> String {
    format!("/v1/sessions/{session}")
}
