//! The time zone of times in the console: chosen once, and kept in a cookie. Without script the browser does not report
//! it.

use crate::http::console::paths;
use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use chrono_tz::Tz;

use super::super::State;
use super::cookies;
use super::form::{self, Form};
use super::session::visitor;
use super::{Turned, page, respond, see, view};

pub(in crate::http) async fn show(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, offered(&state, &request).await).await))
}

pub(in crate::http) async fn choose(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(
        respond(&state, &request, chosen(&state, &request, payload).await).await
    ))
}

async fn offered(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let body = view::zone::offered(&visitor, state.edge.runs.now_us());
    Ok(page(StatusCode::OK, Some(&visitor), "Time zone", &body))
}

async fn chosen(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let form = Form::read(state, request, payload, visitor.form_token.as_deref()).await?;
    let zone: Option<Tz> = form.get("zone").and_then(|zone| zone.parse().ok());
    let zone = zone.ok_or_else(|| {
        form::invalid(
            "zone",
            "is not a time zone; allowed: an IANA name such as Europe/Berlin",
        )
    })?;
    let mut response = see(paths::APPROVALS);
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookies::set_zone(request, zone));
    Ok(response)
}
