//! The progress of a session: a frame of its page that refreshes itself. The page does not, because the visitor may be
//! reading a step or writing a reason in it.

use actix_web::HttpResponse;

use super::{path, seen};
use crate::domain::ids::PlanningSessionId;
use crate::http::console::paths;
use crate::http::console::session::Onlooker;
use crate::http::console::view::planning::{Progress, progress};
use crate::http::console::{Parameters, Turned, framed};
use crate::http::error::Error;
use crate::http::request::{Id, Open};

pub(crate) async fn look(
    edge: Open,
    onlooker: Result<Onlooker, Turned>,
    id: Result<Id<PlanningSessionId>, Turned>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let page = id
        .as_ref()
        .map_or_else(|_| paths::SESSIONS.to_owned(), |Id(id)| path(*id));
    let found = async {
        let (Onlooker(visitor), Id(id)) = (onlooker?, id?);
        let session = edge
            .planning
            .session(&visitor.caller, visitor.reads.as_ref(), id)
            .await?;
        let changed = given.get("seen") != Some(seen(&session));
        Ok(Progress::Of {
            session: Box::new(session),
            changed,
        })
    };
    let found = match found.await {
        Ok(found) => found,
        Err(Turned::LogIn(_) | Turned::Again(_)) => Progress::LoggedOut,
        Err(turned @ Turned::Error(Error::NotFound)) => return Err(turned),
        // The frame checks again later.
        Err(_) => Progress::Unknown,
    };
    Ok(framed(progress(&found, &page)))
}
