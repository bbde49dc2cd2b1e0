//! The versions of a plan: any two side by side, and how each came about.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;

use super::path;
use crate::api::planning::Version;
use crate::domain::ids::PlanningSessionId;
use crate::http::console::session::Visitor;
use crate::http::console::view::planning::versions::{MOST_VERSIONS, Pair, versions};
use crate::http::console::{Parameters, Turned, page};
use crate::http::error::Error;
use crate::http::request::{Id, Open};
use crate::http::{Edge, query};

/// `from` and `to` are the compared versions; without them the current one and the one before. `before` is the oldest
/// version of the page before.
pub(crate) async fn show(
    edge: Open,
    visitor: Visitor,
    Id(session): Id<PlanningSessionId>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let planning = &edge.planning;
    let current = planning.session(&visitor.caller, visitor.reads.as_ref(), session);
    let current = current.await?.plan_version;
    let number = |name: &str| -> Result<Option<u32>, Error> {
        let given = given.get(name).map(|text| query::number(&text).ok_or(Error::NotFound));
        given.transpose()
    };
    let to = number("to")?.unwrap_or(current);
    let from = number("from")?.unwrap_or_else(|| to.saturating_sub(1).max(1));
    let pair = match current {
        0 => None,
        _ => Some(Pair {
            from: one(&edge, &visitor, session, from).await?,
            to: one(&edge, &visitor, session, to).await?,
        }),
    };
    let last = number("before")?.map_or(current, |before| before.saturating_sub(1).min(current));
    let history = latest(&edge, &visitor, session, last).await?;
    let body = versions(&path(session), current, pair.as_ref(), &history, visitor.zone);
    Ok(page(StatusCode::OK, Some(&visitor), "Versions of the plan", &body))
}

async fn one(edge: &Edge, visitor: &Visitor, session: PlanningSessionId, version: u32) -> Result<Version, Turned> {
    let before = version.checked_sub(1).ok_or(Error::NotFound)?;
    let planning = &edge.planning;
    let found = planning.versions(&visitor.caller, visitor.reads.as_ref(), session, (before, 1));
    let found = found.await?.into_iter().find(|found| found.version == version);
    Ok(found.ok_or(Error::NotFound)?)
}

/// The versions up to `last`, the latest first: those of a page, and the one before them.
pub(super) async fn latest(
    edge: &Edge,
    visitor: &Visitor,
    session: PlanningSessionId,
    last: u32,
) -> Result<Vec<Version>, Turned> {
    let after = last.saturating_sub(MOST_VERSIONS + 1);
    let planning = &edge.planning;
    let range = (after, last - after);
    let found = planning.versions(&visitor.caller, visitor.reads.as_ref(), session, range);
    let mut found = found.await?;
    found.reverse();
    Ok(found)
}
