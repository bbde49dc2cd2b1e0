//! Confirms a plan: begins the work on it, or shows what would happen.

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error::unreadable;
use super::path;
use crate::api::planning::{DryRun, ExecuteBody, Session};
use crate::domain::ids::PlanningSessionId;
use crate::http::answer::{Preferred, Reply, Started};
use crate::http::error::{Code, Error};
use crate::http::patience::Patience;
use crate::http::request::{Acting, Ctx, Given, Id, Meta, Optional};
use crate::surfaces::planning::{ExecutePlan, PlanningError};

impl Given for ExecuteBody {
    const FORM: &'static str = r#"{"planVersion"?, "askFor"?: [TOOL], "dryRun"?}"#;
    const ABOUT: &'static str = "What you confirm; no body confirms the current version.";

    fn example() -> Value {
        json!({"planVersion": 3, "askFor": ["createIssue"]})
    }
}

/// The session; with `dryRun`, what would happen.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ExecutePlanAnswer)]
pub(crate) enum Answer {
    Session(Box<Session>),
    DryRun(DryRun),
}

/// Confirms a plan and begins the work on it.
///
/// The work is done in the background, task by task, until every task is done or the deadline has passed. The response
/// comes at once; with `Prefer: wait=N` after at most N seconds, or as soon as the session has ended. From then on the
/// plan can no longer be changed by hand. The confirmation allows the tools that the plan names, in its repository and
/// on branches with the configured prefix; everything else with side effects asks a person. A session that was
/// executed before is left as it is, so the request can be sent again.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/execute",
    operation_id = "executePlan",
    tag = "planning sessions",
    responses(
        (status = 200, description = "The session, which has ended; or the dry run."),
        (status = 202, description = "The session, which is being worked on; `Location` names it.", body = Session),
    ),
    extensions(("x-problems" = json!([
        Code::RepositoryNotAllowed, Code::PlanInProgress, Code::PlanChanged, Code::SessionOver, Code::DeadlinePassed,
        Code::TooManySessions, Code::AgentUnavailable
    ])))
)]
pub(crate) async fn execute(
    ctx: Ctx,
    patience: Patience,
    Optional(given): Optional<ExecuteBody>,
    Acting(user): Acting,
    Id(session): Id<PlanningSessionId>,
    Meta(meta): Meta,
) -> Result<Preferred<Answer>, Error> {
    let execute = ExecutePlan {
        session,
        plan_version: given.plan_version,
        ask_for: given.ask_for,
        // As for every run: who waits is served by this process, such as a command by its own service.
        background: !matches!(patience, Patience::Some(_)),
        meta,
    };
    let planning = &ctx.planning;
    if given.dry_run {
        let dry_run = planning.dry_run(&ctx.caller, user.as_ref(), &execute).await?;
        return Ok(Preferred::nothing(Answer::DryRun(dry_run)));
    }
    let keyed = execute.meta.idempotency.is_some();
    let execution = planning.execute_plan(&ctx.caller, user.as_ref(), execute).await?;
    let read = async {
        // Without a preference the caller does not wait: the work may take days.
        if let Patience::Some(_) = patience {
            patience.wait(execution.ended()).await?;
        }
        let session = planning.session(&ctx.caller, None, execution.session).await;
        session.map_err(PlanningError::from)
    };
    // The work has begun: if the session cannot be read now, the request must not be sent again.
    let session = read
        .await
        .map_err(|error| unreadable(&ctx.state, execution.session, execution.run, error))?;
    let (has_ended, path) = (session.status.has_ended(), path(session.session_id));
    let reply = Reply::current(has_ended, Answer::Session(Box::new(session))).at(path);
    let begun = execution.begun.as_ref().map(|begun| &begun.begun);
    Ok(Started::new(reply, begun, keyed).preferred(patience))
}
