//! The list of what waits, and the page of one question.

use maud::{Markup, html};

use super::super::nothing;
use super::super::session::Visitor;
use super::{next, words};
use crate::http::routes::Route;

/// Which questions are asked for.
pub(in crate::http::console) struct Filter {
    pub(in crate::http::console) user: Option<String>,
    pub(in crate::http::console) tool: Option<String>,
}

/// What the list is made of.
pub(in crate::http::console) struct Listed<'a> {
    pub(in crate::http::console) visitor: &'a Visitor,
    pub(in crate::http::console) filter: &'a Filter,
    pub(in crate::http::console) flash: Option<Markup>,
    pub(in crate::http::console) cards: Vec<Markup>,
    /// The token of the next page.
    pub(in crate::http::console) next: Option<&'a str>,
    pub(in crate::http::console) doubts: Vec<Markup>,
    pub(in crate::http::console) more_doubts: bool,
}

/// The page.
pub(in crate::http::console) fn listed(listed: &Listed<'_>) -> Markup {
    let filtered = listed.filter.user.is_some() || listed.filter.tool.is_some();
    let pairs = [
        ("user", listed.filter.user.as_deref()),
        ("tool", listed.filter.tool.as_deref()),
        ("page_token", listed.next),
    ];
    html! {
        @if let Some(flash) = &listed.flash { (flash) }
        h1 { "Approvals" }
        p.lead {
            @if listed.visitor.is_approver() { "Actions of agents, for any user, that wait for an approval. " }
            @else { "Actions of agents, for you, that wait for an approval. " }
            "An approved action runs once, exactly as it is shown."
        }
        (filter(listed, filtered))
        section aria-labelledby="waiting" {
            h2 #waiting {
                "Waiting for an answer"
                @if !listed.cards.is_empty() {
                    " " span.count { (listed.cards.len()) @if listed.next.is_some() { "+" } }
                }
            }
            @if listed.cards.is_empty() {
                (nothing(if filtered { "Nothing of this waits for an answer." } else { "Nothing waits for an answer." }))
            }
            @for card in &listed.cards { (card) }
            @if listed.next.is_some() { (next(Route::ConsoleApprovals.path(), &pairs)) }
        }
        @if !listed.doubts.is_empty() {
            section aria-labelledby="doubts" {
                h2 #doubts { "In doubt " span.count { (listed.doubts.len()) @if listed.more_doubts { "+" } } }
                p { "These actions were sent, and their outcome is unknown. gavel does not repeat them: check what happened, and settle them." }
                @for doubt in &listed.doubts { (doubt) }
                @if listed.more_doubts { p { "There are more; they come up as these are settled." } }
            }
        }
    }
}

fn filter(listed: &Listed<'_>, filtered: bool) -> Markup {
    html! {
        details.filter open[filtered] {
            summary { "Filter" @if filtered { " (on)" } }
            form method="get" action=(Route::ConsoleApprovals.path()) {
                @if listed.visitor.is_approver() {
                    (field("user", "For whom", listed.filter.user.as_deref()))
                }
                (field("tool", "Tool", listed.filter.tool.as_deref()))
                button type="submit" { "Show" }
                @if filtered { a href=(Route::ConsoleApprovals.path()) { "Show all" } }
            }
        }
    }
}

fn field(name: &str, label: &str, value: Option<&str>) -> Markup {
    html! {
        label for={ "f-" (name) } { (label) }
        input #{ "f-" (name) } type="text" name=(name) value=(value.unwrap_or_default()) autocomplete="off";
    }
}

/// The page of one question.
pub(in crate::http::console) fn one(flash: Option<Markup>, card: &Markup) -> Markup {
    html! {
        @if let Some(flash) = flash { (flash) }
        p.back { a href=(Route::ConsoleApprovals.path()) { (words::text("← All approvals")) } }
        (card)
    }
}
