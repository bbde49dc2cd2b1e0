//! The log of a session: every call of every task, in order.

use chrono_tz::Tz;
use maud::{Markup, html};

use super::super::super::nothing;
use super::super::{next, words};
use super::{SHORT, in_words, took};
use crate::api::planning::LoggedAction;
use crate::domain::action::in_words as error_in_words;

/// Rendered bytes of the arguments of a call.
const ARGUMENTS: usize = 2048;

/// Renders a page of the log; `path` is the address of the session's page.
pub(crate) fn log_page(actions: &[LoggedAction], path: &str, more: bool, zone: Tz) -> Markup {
    let last = actions.last().filter(|_| more).map(|action| action.n.to_string());
    html! {
        p.back { a href=(path) { "← The session" } }
        h1 { "Log" }
        p.lead { "Every call of the planner and of every task, in order, with how it ended and what allowed it." }
        @if actions.is_empty() { (nothing("Nothing was called yet.")) } @else { (table(actions, zone)) }
        @if last.is_some() { (next(&format!("{path}/log"), &[("after", last.as_deref())])) }
    }
}

/// The actions as a table.
pub(super) fn table(actions: &[LoggedAction], zone: Tz) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Log" {
            table.log {
                thead {
                    tr {
                        th scope="col" { "No." }
                        th scope="col" { "Time" }
                        th scope="col" { "Task" }
                        th scope="col" { "Call" }
                        th scope="col" { "State" }
                        th scope="col" { "Decided by" }
                        th scope="col" { "Took" }
                    }
                }
                tbody { @for action in actions { (row(action, zone)) } }
            }
        }
    }
}

fn row(action: &LoggedAction, zone: Tz) -> Markup {
    html! {
        tr {
            td { (action.n) }
            td { (words::at(action.at.0, zone)) }
            td { (action.part()) }
            td {
                details {
                    summary { (words::code(&action.tool)) }
                    pre.raw dir="auto" { (words::beginning(action.arguments.get(), ARGUMENTS)) }
                }
            }
            td {
                (in_words(action.status.as_str()))
                @if let Some(error) = &action.error {
                    ": " (words::code(error.tool_code.as_deref().unwrap_or(error.code.as_str()))) " " (words::beginning(&error_in_words(&error.message), SHORT))
                }
            }
            td { @if let Some(by) = &action.decided_by { bdi { (words::beginning(by, SHORT)) } } }
            td { @if let Some(ms) = action.duration_ms { (took(ms)) } }
        }
    }
}
