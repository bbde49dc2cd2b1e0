//! The progress of a session: a frame of its page that refreshes itself. The page does not, because the visitor may be
//! reading a step or writing a reason in it.

use crate::http::console::paths;
use crate::http::request::Raw;
use actix_web::{HttpRequest, HttpResponse};

use super::super::super::State;
use super::super::super::error::Error;
use super::super::approvals::parameter;
use super::super::session::onlooker;
use super::super::view::planning::progress::{Progress, progress};
use super::super::{Turned, framed, respond};
use super::{id, path, seen};

pub(in crate::http) async fn look(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    let found = match found(&state, &request).await {
        Ok(found) => found,
        Err(Turned::LogIn(_) | Turned::Again(_)) => Progress::LoggedOut,
        Err(turned @ Turned::Error(Error::NotFound)) => {
            return exchange.finish(Ok(respond(&state, &request, Err(turned)).await));
        }
        // The frame checks again later.
        Err(_) => Progress::Unknown,
    };
    let page = id(&request).map_or_else(|_| paths::SESSIONS.to_owned(), path);
    exchange.finish(Ok(framed(progress(&found, &page))))
}

async fn found(state: &State, request: &HttpRequest) -> Result<Progress, Turned> {
    let visitor = onlooker(state, request).await?;
    let planning = &state.edge.planning;
    let session = planning.session(&visitor.caller, visitor.reads.as_ref(), id(request)?);
    let session = session.await?;
    let changed = parameter(request, "seen") != Some(seen(&session));
    Ok(Progress::Of {
        session: Box::new(session),
        changed,
    })
}
