//! The time zone of times in the console: chosen once, and kept in a cookie. Without script the browser does not report
//! it.

use std::time::Duration;

use actix_web::http::header;
use chrono_tz::{TZ_VARIANTS, Tz};
use maud::{Markup, html};

use crate::http::console::session::{Cookie, Form, Visitor};
use crate::http::console::view::{form, words};
use crate::http::console::{Page, paths, see};
use crate::http::error::Error;
use crate::http::request::Open;

/// A browser keeps its time zone for a year.
const LASTS: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) async fn show(edge: Open, visitor: Visitor) -> Page {
    let body = offered(&visitor, edge.runs.now_us());
    Ok(visitor.page("Time zone", &body))
}

pub(crate) async fn choose(open: Open, _: Visitor, form: Form) -> Page {
    let zone: Option<Tz> = form.get("zone").and_then(|zone| zone.parse().ok());
    let zone = zone.ok_or_else(|| {
        Error::invalid(
            "zone",
            "is not a time zone; allowed: an IANA name such as Europe/Berlin",
        )
    })?;
    let mut response = see(paths::APPROVALS);
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, Cookie::Zone.set(&open.http, zone.name(), LASTS));
    Ok(response)
}

/// Renders the page.
pub(crate) fn offered(visitor: &Visitor, now_us: i64) -> Markup {
    html! {
        h1 { "Time zone" }
        p.lead { "It is " (words::at(now_us, visitor.zone)) ". This browser shows all times in this zone." }
        (form(visitor, paths::ZONE, &[], &html! {
            label for="zone" { "Your location" }
            select #zone name="zone" {
                (choice(Tz::UTC, visitor.zone))
                @for zone in TZ_VARIANTS.iter().filter(|zone| is_place(**zone)) { (choice(*zone, visitor.zone)) }
            }
            button type="submit" { "Use this time zone" }
        }))
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
