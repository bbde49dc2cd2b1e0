//! The time zone of times in the console: chosen once, and kept in a cookie. Without script the browser does not report
//! it.

use super::paths;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header;
use chrono_tz::Tz;

use super::cookies;
use super::form::Form;
use super::session::Visitor;
use super::{Turned, page, see, view};
use crate::http::error::Error;
use crate::http::request::Open;

pub(crate) async fn show(edge: Open, visitor: Visitor) -> Result<HttpResponse, Turned> {
    let body = view::zone::offered(&visitor, edge.runs.now_us());
    Ok(page(StatusCode::OK, Some(&visitor), "Time zone", &body))
}

pub(crate) async fn choose(open: Open, _: Visitor, form: Form) -> Result<HttpResponse, Turned> {
    let zone: Option<Tz> = form.get("zone").and_then(|zone| zone.parse().ok());
    let zone = zone.ok_or_else(|| {
        Error::invalid(
            "zone",
            "is not a time zone; allowed: an IANA name such as Europe/Berlin",
        )
    })?;
    let mut response = see(paths::APPROVALS);
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookies::set_zone(&open.http, zone));
    Ok(response)
}
