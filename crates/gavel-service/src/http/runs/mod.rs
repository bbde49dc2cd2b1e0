//! Runs of agents: trigger, get, list, cancel, resume.

mod error;
pub(super) mod events;
mod read;

use super::agents::Agent;
use super::answer::{Json, Preferred, Reply, Started};
use super::error::{Code, Error};
use super::patience::Patience;
use super::request::{Acting, Ctx, Id, Key, List, Meta, Query, User};
use crate::api::runs::{AgentRun, RunPage};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ProjectId, RunId};
use crate::surfaces::agents::{self, Trigger};
use crate::surfaces::runs::{Begun, Resume};
pub(super) use error::session_moved;
pub(super) use read::time_zone;
use read::{Settled, TimeLimit, Timing};

/// Runs an agent.
///
/// Waits until the run has ended. With `Prefer: respond-async` the run is queued and answered at once, with
/// `Prefer: wait=N` after at most N seconds. The run reports its outcome: 200 means that it has ended, not that it
/// succeeded. A client that disconnects does not cancel it.
#[utoipa::path(
    post,
    path = "/api/projects/{project}/agents/{agent}/trigger",
    operation_id = "triggerAgent",
    tag = "runs",
    responses(
        (status = 200, description = "The run, which has ended."),
        (status = 202, description = "The run, which is still in progress; `Location` names it."),
    ),
    extensions(("x-problems" = json!([Code::Forbidden, Code::InvalidDefinition])))
)]
pub(super) async fn trigger(
    ctx: Ctx,
    inputs: agents::Inputs,
    Query(timing): Query<Timing>,
    patience: Patience,
    User(user): User,
    Id(agent): Id<Agent>,
    Meta(meta): Meta,
) -> Result<Preferred<AgentRun>, Error> {
    let trigger = Trigger {
        project: agent.project,
        agent: agent.name,
        inputs,
        timeout: timing.timeout_s,
        time_zone: timing.time_zone,
        background: patience == Patience::None,
        meta,
    };
    let keyed = trigger.meta.idempotency.is_some();
    let begun = ctx.agents.trigger(&ctx.caller, user, trigger).await?;
    wait(&ctx, begun, patience, keyed).await
}

/// Resumes a run that is paused, or that failed since its processes were lost.
///
/// The run continues with a fresh budget of steps and time, at most 500 steps over all resumes for an agent with a limit
/// of its own. `attempts` lists what came before.
#[utoipa::path(
    post,
    path = "/api/runs/{id}/resume",
    operation_id = "resumeRun",
    tag = "runs",
    responses(
        (status = 200, description = "The run, which has ended."),
        (status = 202, description = "The run, which is still in progress; `Location` names it."),
    ),
    extensions(("x-problems" = json!([
        Code::Forbidden, Code::NotPaused, Code::PartOfRun, Code::StepLimitExceeded, Code::DeadlinePassed,
        Code::CallsInDoubt, Code::TooManySessions
    ])))
)]
pub(super) async fn resume(
    ctx: Ctx,
    Settled(settled): Settled,
    Query(TimeLimit { timeout_s: timeout }): Query<TimeLimit>,
    patience: Patience,
    Acting(user): Acting,
    Id(id): Id<RunId>,
    Meta(meta): Meta,
) -> Result<Preferred<AgentRun>, Error> {
    let resume = Resume {
        settled,
        timeout,
        background: patience == Patience::None,
        meta,
    };
    let keyed = resume.meta.idempotency.is_some();
    let begun = ctx.runs.resume(&ctx.caller, user, id, resume).await?;
    wait(&ctx, begun, patience, keyed).await
}

/// Lists the runs of a project.
///
/// Latest first. Without a condition on `parent_run_id`, only runs that no other run called. A user sees only their own.
#[utoipa::path(get, path = "/api/projects/{project}/runs", operation_id = "listRuns", tag = "runs")]
pub(super) async fn list(
    ctx: Ctx,
    Acting(user): Acting,
    List(query, _): List<RunPage>,
    Id(project): Id<ProjectId>,
) -> Result<Json<RunPage>, Error> {
    let page = ctx.agents.runs(&ctx.caller, user.as_ref(), &project, query).await?;
    Ok(Json(page.into()))
}

/// Reads one run.
///
/// A run of another tenant or user answers 404, like a missing one.
#[utoipa::path(get, path = "/api/runs/{id}", operation_id = "getRun", tag = "runs")]
pub(super) async fn get(ctx: Ctx, Acting(user): Acting, Id(id): Id<RunId>) -> Result<Json<AgentRun>, Error> {
    Ok(Json(ctx.runs.get(&ctx.caller, user.as_ref(), id).await?))
}

/// Cancels a run.
///
/// Also cancels the runs that it called. A run that has ended remains unchanged.
#[utoipa::path(
    post,
    path = "/api/runs/{id}/cancel",
    operation_id = "cancelRun",
    tag = "runs",
    responses(
        (status = 200, description = "The run has ended.", headers(("Location"))),
        (
            status = 202,
            description = "The run ends when the process that executes it receives the cancellation.",
            headers(("Location"))
        ),
    ),
    extensions(("x-problems" = json!([Code::Forbidden, Code::OutcomeUnrecorded, Code::RunUnreadable])))
)]
pub(super) async fn cancel(
    ctx: Ctx,
    Acting(user): Acting,
    Key(key): Key,
    Id(id): Id<RunId>,
) -> Result<Reply<AgentRun>, Error> {
    let run = ctx.runs.cancel(&ctx.caller, user.as_ref(), id, key.as_ref()).await?;
    // A run in progress ends when its worker receives the cancellation.
    Ok(reply(run.status.has_ended(), run))
}

fn reply(rests: bool, run: AgentRun) -> Reply<AgentRun> {
    let path = format!("/api/runs/{}", run.id);
    Reply::current(rests, run).at(path)
}

/// Returns the run after it has ended, or when the caller's waiting time is exhausted.
async fn wait(ctx: &Ctx, mut begun: Begun, patience: Patience, keyed: bool) -> Result<Preferred<AgentRun>, Error> {
    let (runs, id) = (&ctx.runs, begun.run);
    let run = patience.wait_or(runs.wait(&ctx.caller, &mut begun), runs.get(&ctx.caller, None, id));
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.await.map_err(|error| runs.unreadable(id, error))?;
    let rests = run.status.has_ended() || run.status == RunStatus::AwaitingConfirmation;
    Ok(Started::new(reply(rests, run), Some(&begun), keyed).preferred(patience))
}
