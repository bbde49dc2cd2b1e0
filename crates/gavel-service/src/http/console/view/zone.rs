//! The page that chooses a time zone.

use crate::http::console::paths;
use chrono_tz::{TZ_VARIANTS, Tz};
use maud::{Markup, html};

use super::super::session::Visitor;
use super::{token, words};

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
