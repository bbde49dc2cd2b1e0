//! Edits the plan of a session, and cancels a session.

use actix_web::http::header;
use serde_json::{Value, json};
use utoipa::openapi::Required;

use crate::api::names::Described;
use crate::api::planning::{CancelBody, Session};
use crate::domain::ids::PlanningSessionId;
use crate::http::about::About;
use crate::http::answer::{Json, Reply};
use crate::http::body;
use crate::http::error::{Code, Error};
use crate::http::headers::only;
use crate::http::openapi::params::{header as parameter, key, string};
use crate::http::query;
use crate::http::request::{Acting, Ctx, Given, Id, Meta, Optional, Request, Sent, Take};
use crate::surfaces::planning::{Draft, EditPlan};
use crate::surfaces::request::RequestMeta;

const IF_MATCH: &str = "If-Match";

impl Given for CancelBody {
    const FORM: &'static str = r#"{"reason"?}"#;
    const ABOUT: &'static str = "The reason; no body if there is none.";

    fn example() -> Value {
        json!({"reason": "The repository moves next week."})
    }
}

impl Given for Described<Draft> {
    const FORM: &'static str =
        r#"{"summary"?, "tasks": [{"id"?, "title", "goal", "doneWhen", "tools"}], "assumptions"?, "risks"?}"#;
    const ABOUT: &'static str = "The plan, with 1 to 30 tasks.";

    fn example() -> Value {
        json!({
            "summary": "Parse ISO weeks, tests first.",
            "tasks": [{
                "id": "t1",
                "title": "Write failing tests",
                "goal": "Tests for ISO weeks such as 2026-W48.",
                "doneWhen": "The test run fails in the new tests alone.",
                "tools": ["executeScript"]
            }]
        })
    }
}

/// The version that was edited. Without it an edit could overwrite a version that its author has not seen.
pub(crate) struct Edited(u32);

impl Take for Edited {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let headers = request.http.headers();
        if !headers.contains_key(header::IF_MATCH) {
            return Err(Error::InvalidHeader(
                IF_MATCH,
                "is missing; it must be the planVersion that you edited, in double quotes, such as \"3\"",
            ));
        }
        let tag = only(headers, &header::IF_MATCH).and_then(|value| value.to_str().ok());
        let number = tag.and_then(|tag| tag.strip_prefix('"')?.strip_suffix('"'));
        let version = number.filter(|number| !number.starts_with('0')).and_then(query::number);
        version.map(Self).ok_or(Error::InvalidHeader(
            IF_MATCH,
            "must be the planVersion that you edited, in double quotes, such as \"3\"",
        ))
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
    operation_id = "editPlan",
    tag = "planning sessions",
    responses((status = 200, description = "The session with the new version.")),
    extensions(("x-problems" = json!([
        Code::PlanInProgress, Code::PlanLocked, Code::PlanChanged, Code::SessionOver, Code::DeadlinePassed,
        Code::OutcomeUnrecorded
    ])))
)]
pub(crate) async fn edit(
    ctx: Ctx,
    Edited(version): Edited,
    Sent(Described(draft)): Sent<Described<Draft>>,
    Acting(user): Acting,
    Id(session): Id<PlanningSessionId>,
    EditMeta(meta): EditMeta,
) -> Result<Json<Session>, Error> {
    let edit = EditPlan {
        session,
        version,
        draft,
        meta,
    };
    Ok(Json(ctx.planning.edit(&ctx.caller, user.as_ref(), edit).await?))
}

/// Cancels a planning session.
///
/// Its run ends, and nothing more is done. Plan and history remain readable. A session that has ended remains unchanged,
/// so the request can be sent again.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/cancel",
    operation_id = "cancelPlanning",
    tag = "planning sessions",
    responses(
        (status = 200, description = "The session, which has ended."),
        (status = 202, description = "The session, which ends once its work was interrupted."),
    ),
    extensions(("x-problems" = json!([Code::OutcomeUnrecorded])))
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
