//! The versions of a plan: any two side by side, and how each came about.

use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};

use super::super::super::State;
use super::super::super::error::Error;
use super::super::super::query;
use super::super::approvals::parameter;
use super::super::session::{Visitor, visitor};
use super::super::view::planning::versions::{MOST_VERSIONS, Pair, versions};
use super::super::{Turned, page, respond};
use super::{id, path};
use crate::domain::ids::PlanningSessionId;
use crate::surfaces::planning::Version;

pub(in crate::http) async fn show(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, compared(&state, &request).await).await))
}

/// `from` and `to` are the compared versions; without them the current one and the one before. `before` is the oldest
/// version of the page before.
async fn compared(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let session = id(request)?;
    let planning = &state.edge.planning;
    let current = planning.session(&visitor.caller, visitor.reads.as_ref(), session);
    let current = current.await?.plan_version;
    let number = |name: &str| -> Result<Option<u32>, Error> {
        let given = parameter(request, name).map(|text| query::number(&text).ok_or(Error::NotFound));
        given.transpose()
    };
    let to = number("to")?.unwrap_or(current);
    let from = number("from")?.unwrap_or_else(|| to.saturating_sub(1).max(1));
    let pair = match current {
        0 => None,
        _ => Some(Pair {
            from: one(state, &visitor, session, from).await?,
            to: one(state, &visitor, session, to).await?,
        }),
    };
    let last = number("before")?.map_or(current, |before| before.saturating_sub(1).min(current));
    let history = latest(state, &visitor, session, last).await?;
    let body = versions(&path(session), current, pair.as_ref(), &history, visitor.zone);
    Ok(page(StatusCode::OK, Some(&visitor), "Versions of the plan", &body))
}

async fn one(state: &State, visitor: &Visitor, session: PlanningSessionId, version: u32) -> Result<Version, Turned> {
    let before = version.checked_sub(1).ok_or(Error::NotFound)?;
    let planning = &state.edge.planning;
    let found = planning.versions(&visitor.caller, visitor.reads.as_ref(), session, (before, 1));
    let found = found.await?.into_iter().find(|found| found.version == version);
    Ok(found.ok_or(Error::NotFound)?)
}

/// The versions up to `last`, the latest first: those of a page, and the one before them.
pub(super) async fn latest(
    state: &State,
    visitor: &Visitor,
    session: PlanningSessionId,
    last: u32,
) -> Result<Vec<Version>, Turned> {
    let after = last.saturating_sub(MOST_VERSIONS + 1);
    let planning = &state.edge.planning;
    let range = (after, last - after);
    let found = planning.versions(&visitor.caller, visitor.reads.as_ref(), session, range);
    let mut found = found.await?;
    found.reverse();
    Ok(found)
}
