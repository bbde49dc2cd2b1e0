//! The choice of a time zone.

use chrono_tz::{TZ_VARIANTS, Tz};
use maud::{Markup, html};

use super::super::session::Visitor;
use super::{token, words};
use crate::http::routes::Route;

/// The page.
pub(in crate::http::console) fn offered(visitor: &Visitor, now_us: i64) -> Markup {
    html! {
        h1 { "Time zone" }
        p.lead { "It is " (words::at(now_us, visitor.zone)) ". All times are shown so in this browser." }
        form method="post" action=(Route::ConsoleZone.path()) {
            (token(visitor))
            label for="zone" { "Where you are" }
            select #zone name="zone" {
                (choice(Tz::UTC, visitor.zone))
                @for zone in TZ_VARIANTS.iter().filter(|zone| is_place(**zone)) { (choice(*zone, visitor.zone)) }
            }
            button type="submit" { "Show times so" }
        }
    }
}

fn choice(zone: Tz, chosen: Tz) -> Markup {
    let name = zone.name();
    html! { option value=(name) selected[zone == chosen] { (name.replace('_', " ")) } }
}

/// A city of a continent or an ocean; other names are old ones of these, or no places.
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
