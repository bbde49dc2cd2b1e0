//! Console pages of planning sessions: the list of sessions, and in the parts of this module one session, what was done
//! for it, the versions of its plan, and the buttons.

pub(in crate::http) mod change;
pub(in crate::http) mod news;
pub(in crate::http) mod one;
pub(in crate::http) mod versions;
pub(in crate::http) mod work;

use crate::http::console::paths;
use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use super::super::State;
use super::super::error::Error;
use super::approvals::parameter;
use super::session::{Visitor, visitor};
use super::view::planning::{Filter, Listed, listed};
use super::{Turned, form, page, respond};
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::planning_session::SessionStatus;
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::planning::Session;

pub(in crate::http) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, all(&state, &request).await).await))
}

async fn all(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let filter = filter(&visitor, request)?;
    let query = ListQuery {
        page_size: super::PAGE_SIZE,
        page_token: parameter(request, "page_token"),
        filter: filter.status.map(|status| format!("status = \"{}\"", status.as_str())),
        ..ListQuery::default()
    };
    let user = filter.user.as_ref().or(visitor.reads.as_ref());
    let found = state.edge.planning.list(&visitor.caller, user, query).await?;
    let body = listed(&Listed {
        visitor: &visitor,
        filter: &filter,
        sessions: &found.items,
        next: found.next_page_token.as_deref(),
    });
    Ok(page(StatusCode::OK, Some(&visitor), "Planning sessions", &body))
}

/// The filter of the list. Only a visitor who reads the sessions of all users can name one.
fn filter(visitor: &Visitor, request: &HttpRequest) -> Result<Filter, Turned> {
    let status = parameter(request, "status").map(|text| {
        let names: Vec<_> = SessionStatus::ALL.iter().map(|status| status.as_str()).collect();
        let detail = || format!("is not a status; allowed: {}", names.join(", "));
        SessionStatus::parse(&text).ok_or_else(|| form::invalid("status", &detail()))
    });
    let user = parameter(request, "user").filter(|_| visitor.reads.is_none());
    let user = user.map(|text| {
        let detail = "is not a user; it has at most 256 bytes and no invisible characters";
        UserId::parse(text).map_err(|_| form::invalid("user", detail))
    });
    Ok(Filter {
        status: status.transpose()?,
        user: user.transpose()?,
    })
}

/// The session id of the path.
fn id(request: &HttpRequest) -> Result<PlanningSessionId, Error> {
    let id = request.match_info().get("id").and_then(PlanningSessionId::parse);
    id.ok_or(Error::NotFound)
}

/// The path of a session's page.
fn path(id: PlanningSessionId) -> String {
    format!("{}/{id}", paths::SESSIONS)
}

/// A hash of what the page of a session shows and what changes by itself.
fn seen(session: &Session) -> String {
    let waits = session.waiting_for.as_deref().unwrap_or_default();
    let shown = serde_json::json!({
        "status": session.status,
        "version": session.plan_version,
        "plan": session.plan,
        "refinement": session.refinement,
        "waits": waits.iter().map(|wait| wait.action_id.to_string()).collect::<Vec<_>>(),
    });
    hex::encode(&Sha256::digest(shown.to_string())[..8])
}
