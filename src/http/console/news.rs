//! Reports changes since a list was opened. A frame of the list refreshes itself for this; the list does not, because
//! the approver may be writing a reason in it.

use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use maud::Markup;

use super::super::State;
use super::super::exchange::Exchange;
use super::super::routes::Route;
use super::approvals::{actions, filter, parameter, seen};
use super::session::onlooker;
use super::view::approvals::{News, news};
use super::{FRAMED, Turned, secured};
use crate::domain::action::ActionStatus;

pub(in crate::http) async fn look(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ConsoleNews));
    let found = match changed(&state, &request).await {
        Ok(true) => News::Changed,
        Ok(false) => News::None,
        Err(Turned::LogIn(_) | Turned::Again(_)) => News::LoggedOut,
        // The frame checks again later.
        Err(_) => News::Unknown,
    };
    exchange.finish(Ok(framed(news(&found, &filter(&request)))))
}

/// Whether the list has changed.
async fn changed(state: &State, request: &HttpRequest) -> Result<bool, Turned> {
    let visitor = onlooker(state, request).await?;
    let token = parameter(request, "page_token");
    let query = actions(ActionStatus::AwaitingConfirmation, &filter(request), token);
    let pending = state
        .edge
        .approvals
        .list(&visitor.caller, visitor.user.clone(), query)
        .await?;
    Ok(parameter(request, "seen") != Some(seen(&pending.items)))
}

/// A page that gavel's own pages may frame.
pub(super) fn framed(page: Markup) -> HttpResponse {
    let mut response = secured(actix_web::http::StatusCode::OK);
    response.insert_header((header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(FRAMED)));
    response.insert_header((header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN")));
    response.body(page.into_string())
}
