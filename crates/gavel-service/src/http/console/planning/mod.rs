//! Console pages of planning sessions: the list of sessions, and in the parts of this module one session, what was done
//! for it, the versions of its plan, and the buttons.

pub(crate) mod change;
pub(crate) mod news;
pub(crate) mod one;
pub(crate) mod versions;
pub(crate) mod work;

use super::paths;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use sha2::{Digest, Sha256};

use super::session::Visitor;
use super::view::planning::{Filter, Listed, listed};
use super::{Parameters, Turned, page};
use crate::api::planning::Session;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::planning_session::SessionStatus;
use crate::http::error::Error;
use crate::http::request::Open;
use crate::surfaces::decisions::ListQuery;

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Result<HttpResponse, Turned> {
    let filter = filter(&visitor, &given)?;
    let query = ListQuery {
        page_size: super::PAGE_SIZE,
        page_token: given.get("page_token"),
        filter: filter.status.map(|status| format!("status = \"{}\"", status.as_str())),
        ..ListQuery::default()
    };
    let user = filter.user.as_ref().or(visitor.reads.as_ref());
    let found = edge.planning.list(&visitor.caller, user, query).await?;
    let body = listed(&Listed {
        visitor: &visitor,
        filter: &filter,
        sessions: &found.items,
        next: found.next_page_token.as_deref(),
    });
    Ok(page(StatusCode::OK, Some(&visitor), "Planning sessions", &body))
}

/// The filter of the list. Only a visitor who reads the sessions of all users can name one.
fn filter(visitor: &Visitor, given: &Parameters) -> Result<Filter, Turned> {
    let status = given.get("status").map(|text| {
        let names: Vec<_> = SessionStatus::ALL.iter().map(|status| status.as_str()).collect();
        let detail = || format!("is not a status; allowed: {}", names.join(", "));
        SessionStatus::parse(&text).ok_or_else(|| Error::invalid("status", detail()))
    });
    let user = given.get("user").filter(|_| visitor.reads.is_none());
    let user = user.map(|text| {
        let detail = "is not a user; it has at most 256 bytes and no invisible characters";
        UserId::parse(text).map_err(|_| Error::invalid("user", detail))
    });
    Ok(Filter {
        status: status.transpose()?,
        user: user.transpose()?,
    })
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
