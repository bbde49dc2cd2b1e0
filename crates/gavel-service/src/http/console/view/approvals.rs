//! The list of pending approval requests, and the page of one request.

use crate::http::console::paths;
use maud::{DOCTYPE, Markup, html};

use super::super::session::Visitor;
use super::super::{STYLE_HASH, nothing};
use super::{address, head, next, words};

/// The filter of the list.
pub(crate) struct Filter {
    pub(crate) user: Option<String>,
    pub(crate) tool: Option<String>,
}

impl Filter {
    fn is_on(&self) -> bool {
        self.user.is_some() || self.tool.is_some()
    }
}

/// The data of the list.
pub(crate) struct Listed<'a> {
    pub(crate) visitor: &'a Visitor,
    pub(crate) filter: &'a Filter,
    pub(crate) flash: Option<Markup>,
    pub(crate) rows: Vec<Markup>,
    /// The token of this page.
    pub(crate) page: Option<&'a str>,
    /// Whether the visitor has paused the refreshing of the list.
    pub(crate) is_paused: bool,
    /// The token of the next page.
    pub(crate) next: Option<&'a str>,
    pub(crate) in_doubt: Vec<Markup>,
    pub(crate) more_in_doubt: bool,
}

/// Renders the page.
pub(crate) fn listed(listed: &Listed<'_>) -> Markup {
    let filtered = listed.filter.is_on();
    let pairs = [
        ("user", listed.filter.user.as_deref()),
        ("tool", listed.filter.tool.as_deref()),
        ("page_token", listed.next),
        ("still", listed.is_paused.then_some("1")),
    ];
    html! {
        @if let Some(flash) = &listed.flash { (flash) }
        h1 { "Approvals" }
        p.lead {
            @if listed.visitor.is_approver() { "Actions of agents, for any user, that wait for approval. " }
            @else { "Actions of agents, for you, that wait for approval. " }
            "An approved action is executed once, exactly as shown. "
            a href=(paths::ANSWERED) { "Answered requests" }
        }
        (form(paths::APPROVALS, listed.filter, listed.visitor))
        (refreshing(listed))
        section aria-labelledby="waiting" {
            h2 #waiting {
                "Waiting for approval"
                @if !listed.rows.is_empty() {
                    " " span.count { (listed.rows.len()) @if listed.next.is_some() { "+" } }
                }
            }
            @if listed.rows.is_empty() {
                (nothing(if filtered { "No action that matches the filter waits for approval." } else { "No action waits for approval." }))
            }
            ul.rows { @for row in &listed.rows { (row) } }
            @if listed.next.is_some() { (next(paths::APPROVALS, &pairs)) }
        }
        @if !listed.in_doubt.is_empty() {
            section aria-labelledby="in-doubt" {
                h2 #in-doubt { "Outcome unknown " span.count { (listed.in_doubt.len()) @if listed.more_in_doubt { "+" } } }
                p { "These actions were sent, and gavel received no result. It does not repeat them: check what happened, and settle them." }
                ul.rows { @for row in &listed.in_doubt { (row) } }
                @if listed.more_in_doubt { p { "There are more; they appear when these are settled." } }
            }
        }
    }
}

/// The form of a filter for the list at this address.
fn form(list: &str, filter: &Filter, visitor: &Visitor) -> Markup {
    html! {
        details.filter open[filter.is_on()] {
            summary { "Filter" @if filter.is_on() { " (on)" } }
            form method="get" action=(list) {
                @if visitor.is_approver() {
                    (field("user", "For whom", filter.user.as_deref()))
                }
                (field("tool", "Tool", filter.tool.as_deref()))
                button type="submit" { "Show" }
                @if filter.is_on() { a href=(list) { "Show all" } }
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

/// Renders the page of requests that were answered or expired.
pub(crate) fn answered(visitor: &Visitor, filter: &Filter, rows: &[Markup], more: Option<&str>) -> Markup {
    let path = paths::ANSWERED;
    let pairs = [
        ("user", filter.user.as_deref()),
        ("tool", filter.tool.as_deref()),
        ("page_token", more),
    ];
    html! {
        p.back { a href=(paths::APPROVALS) { (words::text("← All approvals")) } }
        h1 { "Answered requests" }
        p.lead { "Requests that were approved or rejected, or that expired, the latest request first." }
        (form(path, filter, visitor))
        @if rows.is_empty() { (nothing(if filter.is_on() { "No answered request matches the filter." } else { "No request was answered yet." })) }
        ul.rows { @for row in rows { (row) } }
        @if more.is_some() { (next(path, &pairs)) }
    }
}

/// Renders the page of one approval request.
pub(crate) fn one(flash: Option<Markup>, card: &Markup) -> Markup {
    html! {
        @if let Some(flash) = flash { (flash) }
        p.back { a href=(paths::APPROVALS) { (words::text("← All approvals")) } }
        (card)
    }
}

/// The content of a frame in place of HTML that cannot be shown.
pub(crate) fn in_place(words: &str) -> Markup {
    html! {
        (DOCTYPE)
        html.news lang="en" {
            (head("Message", &STYLE_HASH, None))
            body { p role="status" { (words) } }
        }
    }
}

/// Seconds after which the list refreshes itself.
const REFRESH: u32 = 30;

/// What a list says about its refreshing, with the link that pauses or resumes it.
fn refreshing(listed: &Listed<'_>) -> Markup {
    let other = listed.address(!listed.is_paused, None);
    html! {
        p.hint {
            @if listed.is_paused { "This list does not refresh itself. " a href=(other) { "Refresh it" } }
            @else { "Refreshes itself every " (REFRESH) " seconds. " a href=(other) { "Pause" } }
        }
    }
}

impl Listed<'_> {
    /// The value of the `Refresh` header, unless the visitor has paused it. The request that it causes does not count as
    /// use of the session.
    pub(crate) fn refresh(&self) -> Option<String> {
        let path = self.address(false, Some("1"));
        (!self.is_paused).then(|| format!("{REFRESH}; url={path}"))
    }

    fn address(&self, is_paused: bool, auto: Option<&str>) -> String {
        address(
            paths::APPROVALS,
            &[
                ("user", self.filter.user.as_deref()),
                ("tool", self.filter.tool.as_deref()),
                ("page_token", self.page),
                ("still", is_paused.then_some("1")),
                ("auto", auto),
            ],
        )
    }
}
