//! How far a session is: the frame of its page that refreshes itself.

use maud::{DOCTYPE, Markup, html};

use super::super::super::STYLE_HASH;
use super::super::{head, words};
use super::{done, in_words, left};
use crate::api::planning::Session;

/// What the frame shows.
pub(crate) enum Progress {
    /// The session, and whether it has changed since its page was opened.
    Of { session: Box<Session>, changed: bool },
    /// The visitor must log in.
    LoggedOut,
    /// The session cannot be read now.
    Unknown,
}

/// Seconds between two looks at a session.
const LOOK: u32 = 5;

/// Renders the page inside the frame; `page` is the address of the session's page.
pub(crate) fn progress(progress: &Progress, page: &str) -> Markup {
    let refreshes = match progress {
        Progress::Of { session, .. } => !session.status.has_ended(),
        Progress::LoggedOut => false,
        Progress::Unknown => true,
    };
    html! {
        (DOCTYPE)
        html.news lang="en" {
            (head("Progress", &STYLE_HASH, refreshes.then(|| LOOK.to_string()).as_deref()))
            body {
                p role="status" {
                    @match progress {
                        Progress::Of { session, changed } => {
                            (state(session))
                            @if *changed { " " a href=(page) target="_top" { "Show what is new" } }
                        },
                        Progress::LoggedOut => { "You are logged out. " a href=(page) target="_top" { "Log in" } },
                        Progress::Unknown => { "The session cannot be read now; gavel checks again in " (LOOK) " seconds." },
                    }
                }
            }
        }
    }
}

fn state(session: &Session) -> Markup {
    let at_work = session
        .plan
        .iter()
        .find(|task| Some(task.id) == session.current_task_id);
    let waits = session.waiting_for.as_ref().map_or(0, Vec::len) as u64;
    html! {
        b { (in_words(session.status.as_str())) }
        @if !session.plan.is_empty() { " · tasks: " (done(&session.plan)) }
        @if let Some(task) = at_work { " · " (task.id.to_string()) " after " (words::count(task.steps.into(), "step")) }
        @if !session.status.has_ended() { " · time left: " (left(session.time_left_ms)) }
        @if waits > 0 { " · " b { (words::count(waits, "action")) (if waits == 1 { " waits" } else { " wait" }) " for a person" } }
    }
}
