//! The buttons of a session: confirm its plan, and cancel it.

use actix_web::HttpResponse;

use super::path;
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::SessionStatus;
use crate::http::console::form::Form;
use crate::http::console::session::Visitor;
use crate::http::console::{Turned, see};
use crate::http::error::Error;
use crate::http::request::{Id, Open, RequestName};
use crate::http::{body, query};
use crate::surfaces::planning::{ExecutePlan, PlanningError};
use crate::surfaces::request::RequestMeta;

/// The form names the version that its page shows, so a visitor confirms only what they have read.
pub(crate) async fn confirm(
    edge: Open,
    visitor: Visitor,
    form: Form,
    Id(session): Id<PlanningSessionId>,
    RequestName(request_id): RequestName,
) -> Result<HttpResponse, Turned> {
    let version: Option<u32> = form.get("version").and_then(query::number);
    let version = version.ok_or_else(|| Error::invalid("version", "does not match a button of the page"))?;
    let execute = ExecutePlan {
        session,
        plan_version: Some(version),
        ask_for: Vec::new(),
        background: true,
        meta: RequestMeta {
            request_id,
            traceparent: None,
            idempotency: None,
            shed: None,
        },
    };
    let user = visitor.reads.as_ref();
    let late = match edge.planning.execute_plan(&visitor.caller, user, execute).await {
        // The plan was confirmed before, by this visitor or by another.
        Ok(execution) => execution.begun.is_none(),
        Err(PlanningError::Moved(..) | PlanningError::DeadlinePassed(_)) => true,
        Err(error) => return Err(error.into()),
    };
    Ok(back(session, late))
}

pub(crate) async fn cancel(
    edge: Open,
    visitor: Visitor,
    form: Form,
    Id(session): Id<PlanningSessionId>,
) -> Result<HttpResponse, Turned> {
    let reason = body::reason(form.text("reason"), "reason")?;
    let planning = &edge.planning;
    let ended = planning.cancel(&visitor.caller, visitor.reads.as_ref(), session, reason);
    let ended = ended.await?;
    let late = ended.status.has_ended() && ended.status != SessionStatus::Cancelled;
    Ok(back(session, late))
}

/// Returns to the page of the session. `late`: the session had changed before, and nothing was done.
fn back(session: PlanningSessionId, late: bool) -> HttpResponse {
    let late = if late { "?late=1" } else { "" };
    see(&format!("{}{late}", path(session)))
}
