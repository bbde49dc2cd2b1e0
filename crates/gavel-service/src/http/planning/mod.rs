//! Planning sessions: start, refine, edit, execute, cancel. `read` shows what there is and what was done.

pub(super) mod read;

use actix_web::http::{StatusCode, header};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::Required;

use crate::api::names::Described;
use crate::api::planning::{CancelBody, DryRun, ExecuteBody, RefineBody, Session, StartBody};
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::planning_session::SessionStatus;
use crate::http::answer::{Json, Reply, Started};
use crate::http::error::{Code, Error};
use crate::http::headers::{self, Patience};
use crate::http::openapi::{About, header as parameter, key, string};
use crate::http::request::{Acting, Ctx, Given, Id, Meta, Optional, Request, Sent, Take, User};
use crate::http::routes::operations;
use crate::http::{State, body};
use crate::surfaces::planning::{BegunPlanning, Draft};
use crate::surfaces::problem::Problem as Cause;
use crate::surfaces::request::RequestMeta;

operations! {
    startPlanning = start: [Forbidden, RepositoryNotAllowed, TooManySessions, AgentUnavailable];
    refinePlan = refine:
        [PlanInProgress, PlanLocked, PlanChanged, SessionOver, DeadlinePassed, TooManySessions, AgentUnavailable];
    editPlan = edit:
        [PlanInProgress, PlanLocked, PlanChanged, SessionOver, DeadlinePassed, OutcomeUnrecorded];
    executePlan = execute:
        [RepositoryNotAllowed, PlanInProgress, PlanChanged, SessionOver, DeadlinePassed, TooManySessions,
         AgentUnavailable];
    cancelPlanning = cancel: [OutcomeUnrecorded];
}

impl Given for StartBody {
    const ABOUT: &'static str = "The goal.";
    const EXAMPLE: &'static str = r#"{
        "prompt": "Accept ISO weeks such as 2026-W48, with tests.",
        "repoUrl": "https://github.com/acme/dates",
        "deadline": "2026-11-21T18:00:00+01:00"
    }"#;
}

impl Given for RefineBody {
    const ABOUT: &'static str = "What to change.";
    const EXAMPLE: &'static str = r#"{"refinementPrompt": "Write the tests first, and leave the README alone."}"#;
}

/// Starts a planning session.
///
/// gavel reads the repository and proposes a plan. Nothing of it is executed. The response waits for the plan; with
/// `Prefer: respond-async` it comes at once, with `Prefer: wait=N` after at most N seconds. The session reports the
/// outcome: 201 means that the planning has ended, not that it succeeded. A client that disconnects does not cancel it.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    responses(
        (status = 201, description = "The session, which has a plan or has failed; `Location` names it."),
        (status = 202, description = "The session, which has no plan yet; `Location` names it."),
    )
)]
pub(super) async fn start(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<StartBody>,
    User(user): User,
    Meta(meta): Meta,
) -> Result<Started<Session>, Error> {
    let meta = meta.background(patience == Patience::None);
    let begun = ctx.planning.start_planning(&ctx.caller, user, given, meta).await?;
    wait(&ctx, begun, patience, StatusCode::CREATED).await
}

/// Refines a plan.
///
/// The model makes a new version of the whole plan from the goal, the current plan and all refinements so far. If that
/// fails, the current version remains, and `refinement` gives the reason. The response waits for the new version as
/// that of `POST /v1/sessions` does. Only a session with status `AWAITING_CONFIRMATION` can be refined.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/refine",
    responses(
        (status = 200, description = "The session, with the new version or the current one."),
        (status = 202, description = "The session, whose new version is being made; `Location` names it."),
    )
)]
pub(super) async fn refine(
    ctx: Ctx,
    patience: Patience,
    Sent(given): Sent<RefineBody>,
    Acting(user): Acting,
    Id(session): Id<PlanningSessionId>,
    Meta(meta): Meta,
) -> Result<Started<Session>, Error> {
    let (user, meta) = (user.as_ref(), meta.background(patience == Patience::None));
    let begun = ctx
        .planning
        .refine_plan(&ctx.caller, user, session, given, meta)
        .await?;
    wait(&ctx, begun, patience, StatusCode::OK).await
}

/// Returns the session after its run has ended, or when the caller's waiting time is exhausted. `planned` is the status
/// in the first case; in the second it is 202.
async fn wait(
    ctx: &Ctx,
    mut begun: BegunPlanning,
    patience: Patience,
    planned: StatusCode,
) -> Result<Started<Session>, Error> {
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
    Ok(Started::new(
        Reply::new(status, session).at(path),
        Some(&begun.begun),
        patience,
    ))
}

fn path(session: PlanningSessionId) -> String {
    format!("/v1/sessions/{session}")
}

/// The error for a session that exists and cannot be read now.
fn unreadable(state: &State, id: PlanningSessionId, run: RunId, error: Cause) -> Cause {
    let problem = state.edge.runs.unreadable(run, error);
    if problem.code != Code::RunUnreadable {
        return problem;
    }
    let detail = format!(
        "Planning session {id} exists, but its state cannot be read now. Check it in a moment \
         (GET /v1/sessions/{id}); do not send the request again without its Idempotency-Key."
    );
    Cause::new(Code::RunUnreadable, detail).about(run)
}

const IF_MATCH: &str = "If-Match";

impl Given for CancelBody {
    const ABOUT: &'static str = "The reason; no body if there is none.";
    const EXAMPLE: &'static str = r#"{"reason": "The repository moves next week."}"#;
}

impl Given for Described<Draft> {
    const ABOUT: &'static str = "The plan, with 1 to 30 tasks.";
    const EXAMPLE: &'static str = r#"{
        "summary": "Parse ISO weeks, tests first.",
        "tasks": [{
            "id": "t1",
            "title": "Write failing tests",
            "goal": "Tests for ISO weeks such as 2026-W48.",
            "doneWhen": "The test run fails in the new tests alone.",
            "tools": ["executeScript"]
        }]
    }"#;
}

/// The version that was edited. Without it an edit could overwrite a version that its author has not seen.
pub(crate) struct Edited(u32);

impl Take for Edited {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let headers = request.http.headers();
        let detail = match headers.contains_key(header::IF_MATCH) {
            true => "must be the planVersion that you edited, in double quotes, such as \"3\"",
            false => "is missing; it must be the planVersion that you edited, in double quotes, such as \"3\"",
        };
        let version = headers::version(headers, &header::IF_MATCH);
        version.map(Self).ok_or_else(|| Error::header(IF_MATCH, detail))
    }

    fn describe(about: &mut About<'_>) {
        let version = "The `planVersion` that you edited, in double quotes.";
        let quoted = string().pattern(Some("^\"[1-9][0-9]{0,8}\"$"));
        let parameter = parameter(IF_MATCH, version, quoted).example(Some(json!("\"3\"")));
        about.parameter(parameter.required(Required::True));
    }
}

/// What the surface learns of an edit beside its body.
pub(crate) struct EditMeta(RequestMeta);

impl Take for EditMeta {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        Meta::take(request).await.map(|Meta(meta)| Self(meta))
    }

    fn describe(about: &mut About<'_>) {
        about.parameter(key(
            "Makes a retry safe. For 24 h the same key and body return the session, and another body gets 422.",
        ));
        about.problems(&[Code::IdempotencyKeyReused]);
    }
}

/// Edits a plan by hand.
///
/// The body is the whole plan, which becomes its next version. It is checked like a plan of the model, and all errors
/// are reported at once. A task with an `id` continues that task of the current version; so does one with the same
/// title. Only a session with status `AWAITING_CONFIRMATION` can be edited, and only its current version.
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/plan",
    responses((status = 200, description = "The session with the new version."))
)]
pub(crate) async fn edit(
    ctx: Ctx,
    Edited(version): Edited,
    Sent(Described(draft)): Sent<Described<Draft>>,
    Acting(user): Acting,
    Id(session): Id<PlanningSessionId>,
    EditMeta(meta): EditMeta,
) -> Result<Json<Session>, Error> {
    let which = (session, version);
    let edited = ctx.planning.edit(&ctx.caller, user.as_ref(), which, draft, meta);
    Ok(Json(edited.await?))
}

/// Cancels a planning session.
///
/// Its run ends, and nothing more is done. Plan and history remain readable. A session that has ended remains unchanged,
/// so the request can be sent again.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/cancel",
    responses(
        (status = 200, description = "The session, which has ended."),
        (status = 202, description = "The session, which ends once its work was interrupted."),
    )
)]
pub(crate) async fn cancel(
    ctx: Ctx,
    Optional(given): Optional<CancelBody>,
    Acting(user): Acting,
    Id(id): Id<PlanningSessionId>,
) -> Result<Reply<Session>, Error> {
    let reason = body::reason(given.reason, "/reason")?.filter(|reason| !reason.trim().is_empty());
    let session = ctx.planning.cancel(&ctx.caller, user.as_ref(), id, reason).await?;
    Ok(Reply::current(session.status.has_ended(), session))
}

impl Given for ExecuteBody {
    const ABOUT: &'static str = "What you confirm; no body confirms the current version.";
    const EXAMPLE: &'static str = r#"{"planVersion": 3, "askFor": ["createIssue"]}"#;
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
    responses(
        (status = 200, description = "The session, which has ended; or the dry run."),
        (status = 202, description = "The session, which is being worked on; `Location` names it.", body = Session),
    )
)]
pub(crate) async fn execute(
    ctx: Ctx,
    patience: Patience,
    Optional(given): Optional<ExecuteBody>,
    Acting(user): Acting,
    Id(session): Id<PlanningSessionId>,
    Meta(meta): Meta,
) -> Result<Started<Answer>, Error> {
    let (planning, user) = (&ctx.planning, user.as_ref());
    if given.dry_run {
        let dry_run = planning.dry_run(&ctx.caller, user, session, &given).await?;
        return Ok(Started::nothing(Answer::DryRun(dry_run)));
    }
    // As for every run: who waits is served by this process, such as a command by its own service.
    let meta = meta.background(!matches!(patience, Patience::Some(_)));
    let execution = planning.execute_plan(&ctx.caller, user, session, &given, meta).await?;
    let read = async {
        // Without a preference the caller does not wait: the work may take days.
        if let Patience::Some(_) = patience {
            patience.wait(planning.ended(&ctx.caller, &execution)).await?;
        }
        planning.session(&ctx.caller, None, execution.session).await
    };
    // The work has begun: if the session cannot be read now, the request must not be sent again.
    let session = read
        .await
        .map_err(|error| unreadable(&ctx.state, execution.session, execution.run, error))?;
    let (has_ended, path) = (session.status.has_ended(), path(session.session_id));
    let reply = Reply::current(has_ended, Answer::Session(Box::new(session))).at(path);
    let begun = execution.begun.as_ref();
    Ok(Started::new(reply, begun, patience))
}
