//! The buttons of a session: confirm its plan, and cancel it.

use crate::http::request::Raw;
use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use tracing::Instrument;

use super::super::super::State;
use super::super::super::exchange::Exchange;
use super::super::super::query;
use super::super::form::{self, Form};
use super::super::session::visitor;
use super::super::{Turned, respond, see};
use super::{id, path};
use crate::domain::planning_session::SessionStatus;
use crate::surfaces::approvals::MAX_REASON;
use crate::surfaces::planning::{ExecutePlan, PlanningError};
use crate::surfaces::request::RequestMeta;

pub(in crate::http) async fn confirm(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = confirmed(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(Ok(respond(&state, &request, answer).await))
}

pub(in crate::http) async fn cancel(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = cancelled(&state, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(Ok(respond(&state, &request, answer).await))
}

/// The form names the version that its page shows, so a visitor confirms only what they have read.
async fn confirmed(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let form = Form::read(state, request, payload, visitor.form_token.as_deref()).await?;
    let session = id(request)?;
    let version: Option<u32> = form.get("version").and_then(query::number);
    let version = version.ok_or_else(|| form::invalid("version", "does not match a button of the page"))?;
    let execute = ExecutePlan {
        session,
        plan_version: Some(version),
        ask_for: Vec::new(),
        background: true,
        meta: RequestMeta {
            request_id: Arc::clone(&exchange.id.text),
            traceparent: None,
            idempotency: None,
            shed: None,
        },
    };
    let user = visitor.reads.as_ref();
    let late = match state.edge.planning.execute_plan(&visitor.caller, user, execute).await {
        // The plan was confirmed before, by this visitor or by another.
        Ok(execution) => execution.begun.is_none(),
        Err(PlanningError::Moved(..) | PlanningError::DeadlinePassed(_)) => true,
        Err(error) => return Err(error.into()),
    };
    Ok(back(session, late))
}

async fn cancelled(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let form = Form::read(state, request, payload, visitor.form_token.as_deref()).await?;
    let session = id(request)?;
    let reason = form.text("reason");
    if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(form::invalid("reason", "is too long"));
    }
    let planning = &state.edge.planning;
    let ended = planning.cancel(&visitor.caller, visitor.reads.as_ref(), session, reason);
    let ended = ended.await?;
    let late = ended.status.has_ended() && ended.status != SessionStatus::Cancelled;
    Ok(back(session, late))
}

/// Returns to the page of the session. `late`: the session had changed before, and nothing was done.
fn back(session: crate::domain::ids::PlanningSessionId, late: bool) -> HttpResponse {
    let late = if late { "?late=1" } else { "" };
    see(&format!("{}{late}", path(session)))
}
