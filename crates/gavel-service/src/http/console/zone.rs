//! The time zone of times in the console: chosen once, and kept in a cookie. Without script the browser does not report
//! it.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use chrono_tz::{TZ_VARIANTS, Tz};
use maud::{Markup, html};

use crate::http::console::session::{Form, Visitor, set_zone};
use crate::http::console::view::{token, words};
use crate::http::console::{Turned, page, paths, see};
use crate::http::error::Error;
use crate::http::request::Open;

pub(crate) async fn show(edge: Open, visitor: Visitor) -> Result<HttpResponse, Turned> {
    let body = offered(&visitor, edge.runs.now_us());
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
    headers.insert(header::SET_COOKIE, set_zone(&open.http, zone));
    Ok(response)
}

/// Renders the page.
pub(crate) fn offered(visitor: &Visitor, now_us: i64) -> Markup {
    html! {
        h1 { "Time zone" }
        p.lead { "It is " (words::at(now_us, visitor.zone)) ". This browser shows all times in this zone." }
        form method="post" action=(paths::ZONE) {
            (token(visitor))
            label for="zone" { "Your location" }
            select #zone name="zone" {
                (choice(Tz::UTC, visitor.zone))
                @for zone in TZ_VARIANTS.iter().filter(|zone| is_place(**zone)) { (choice(*zone, visitor.zone)) }
            }
            button type="submit" { "Use this time zone" }
        }
    }
}

fn choice(zone: Tz, chosen: Tz) -> Markup {
    let name = zone.name();
    html! { option value=(name) selected[zone == chosen] { (name.replace('_', " ")) } }
}

/// Whether a zone is a city of a continent or an ocean; other names are old names of these, or not places.
fn is_place(zone: Tz) -> bool {
    const PARTS: [&str; 10] = [
        "Africa/",
        "America/",
        "Antarctica/",
        "Arctic/",
        "Asia/",
        "Atlantic/",
        "Australia/",
        "Europe/",
        "Indian/",
        "Pacific/",
    ];
    PARTS.iter().any(|part| zone.name().starts_with(part))
}
