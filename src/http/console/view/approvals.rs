//! The list of pending approval requests, and the page of one request.

use maud::{DOCTYPE, Markup, html};

use super::super::session::Visitor;
use super::super::{STYLE_HASH, nothing};
use super::{address, head, next, words};
use crate::http::routes::Route;

/// The filter of the list.
pub(in crate::http::console) struct Filter {
    pub(in crate::http::console) user: Option<String>,
    pub(in crate::http::console) tool: Option<String>,
}

/// The data of the list.
pub(in crate::http::console) struct Listed<'a> {
    pub(in crate::http::console) visitor: &'a Visitor,
    pub(in crate::http::console) filter: &'a Filter,
    pub(in crate::http::console) flash: Option<Markup>,
    pub(in crate::http::console) cards: Vec<Markup>,
    /// Hash of the shown requests, and the token of this page: a frame checks whether they changed.
    pub(in crate::http::console) seen: &'a str,
    pub(in crate::http::console) page: Option<&'a str>,
    /// The token of the next page.
    pub(in crate::http::console) next: Option<&'a str>,
    pub(in crate::http::console) in_doubt: Vec<Markup>,
    pub(in crate::http::console) more_in_doubt: bool,
}

/// Renders the page.
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
            @if listed.visitor.is_approver() { "Actions of agents, for any user, that wait for approval. " }
            @else { "Actions of agents, for you, that wait for approval. " }
            "An approved action is executed once, exactly as shown."
        }
        (filter(listed, filtered))
        (watch(listed))
        section aria-labelledby="waiting" {
            h2 #waiting {
                "Waiting for approval"
                @if !listed.cards.is_empty() {
                    " " span.count { (listed.cards.len()) @if listed.next.is_some() { "+" } }
                }
            }
            @if listed.cards.is_empty() {
                (nothing(if filtered { "No action that matches the filter waits for approval." } else { "No action waits for approval." }))
            }
            @for card in &listed.cards { (card) }
            @if listed.next.is_some() { (next(Route::ConsoleApprovals.path(), &pairs)) }
        }
        @if !listed.in_doubt.is_empty() {
            section aria-labelledby="in-doubt" {
                h2 #in-doubt { "Outcome unknown " span.count { (listed.in_doubt.len()) @if listed.more_in_doubt { "+" } } }
                p { "These actions were sent, and gavel received no result. It does not repeat them: check what happened, and settle them." }
                @for card in &listed.in_doubt { (card) }
                @if listed.more_in_doubt { p { "There are more; they appear when these are settled." } }
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

/// Renders the page of one approval request.
pub(in crate::http::console) fn one(flash: Option<Markup>, card: &Markup) -> Markup {
    html! {
        @if let Some(flash) = flash { (flash) }
        p.back { a href=(Route::ConsoleApprovals.path()) { (words::text("← All approvals")) } }
        (card)
    }
}

/// A frame that checks periodically whether the list changed, without interrupting an approver who is writing.
fn watch(listed: &Listed<'_>) -> Markup {
    let path = address(
        Route::ConsoleNews.path(),
        &[
            ("seen", Some(listed.seen)),
            ("user", listed.filter.user.as_deref()),
            ("tool", listed.filter.tool.as_deref()),
            ("page_token", listed.page),
        ],
    );
    html! { iframe.news src=(path) title="Changes of this list" {} }
}

/// Changes since a list was opened.
pub(in crate::http::console) enum News {
    None,
    Changed,
    LoggedOut,
    Unknown,
}

/// Seconds between two checks.
const LOOK: u32 = 15;

/// Renders the page inside the frame.
pub(in crate::http::console) fn news(news: &News, filter: &Filter) -> Markup {
    let list = address(
        Route::ConsoleApprovals.path(),
        &[("user", filter.user.as_deref()), ("tool", filter.tool.as_deref())],
    );
    let has_ended = matches!(news, News::Changed | News::LoggedOut);
    html! {
        (DOCTYPE)
        html.news lang="en" {
            (head("Changes", &STYLE_HASH, (!has_ended).then(|| LOOK.to_string()).as_deref()))
            body {
                p role="status" {
                    @match news {
                        News::None => {},
                        News::Changed => { "This list has changed since you opened it. " a href=(list) target="_top" { "Show the current list" } },
                        News::LoggedOut => { "You are logged out. " a href=(list) target="_top" { "Log in" } },
                        News::Unknown => { "It is unknown whether this list has changed; gavel checks again in " (LOOK) " seconds." },
                    }
                }
            }
        }
    }
}
