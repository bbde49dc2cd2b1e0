//! Console pages of planning sessions: the list, its buttons and its progress here, and in the parts of this module one
//! session, its tasks, and the versions of its plan.

pub(crate) mod session;
pub(crate) mod task;
pub(crate) mod versions;

use actix_web::HttpResponse;
use chrono_tz::Tz;
use maud::{Markup, html};
use sha2::{Digest, Sha256};

use crate::api;
use crate::api::planning::{ExecuteBody, LoggedAction, Session};
use crate::domain::action::in_words as error_in_words;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::plan::{Task, TaskStatus};
use crate::domain::planning_session::SessionStatus;
use crate::http::console::session::{Form, Onlooker, Visitor};
use crate::http::console::view::{self, address, field, next, words};
use crate::http::console::{Page, Parameters, Turned, framed, nothing, paths, see};
use crate::http::error::{Code, Error};
use crate::http::request::{Id, Open, RequestName};
use crate::http::{body, query};
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::request::RequestMeta;

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    let filter = filter(&visitor, &given)?;
    let query = ListQuery {
        filter: filter.status.map(|status| format!("status = \"{}\"", status.as_str())),
        ..given.list()
    };
    let user = filter.user.as_ref().or(visitor.reads.as_ref());
    let found = edge.planning.list(&visitor.caller, user, query).await?;
    let is_on = filter.status.is_some() || filter.user.is_some();
    let fields = html! {
        label for="f-status" { "Status" }
        select #f-status name="status" {
            option value="" { "Any" }
            @for status in SessionStatus::ALL {
                option value=(status.as_str()) selected[filter.status == Some(*status)] { (in_words(status.as_str())) }
            }
        }
        @if visitor.reads.is_none() { (field("user", "User", filter.user.as_ref().map(UserId::as_str))) }
    };
    let more = [
        ("status", filter.status.map(SessionStatus::as_str)),
        ("user", filter.user.as_ref().map(UserId::as_str)),
        ("page_token", found.next_page_token.as_deref()),
    ];
    let body = html! {
        h1 { "Planning sessions" }
        p.lead { "Goals that gavel plans, and works on once a person has confirmed the plan. The latest first." }
        (view::filter(paths::SESSIONS, is_on, &fields))
        @if found.items.is_empty() {
            (nothing(if is_on { "No session matches the filter." } else { "There are no planning sessions yet." }))
        }
        @for session in &found.items { (summary(session, visitor.zone)) }
        @if found.next_page_token.is_some() { (next(&address(paths::SESSIONS, &more))) }
    };
    Ok(visitor.page("Planning sessions", &body))
}

/// The filter of the list.
struct Filter {
    status: Option<SessionStatus>,
    user: Option<UserId>,
}

/// The filter of the list. Only a visitor who reads the sessions of all users can name one.
fn filter(visitor: &Visitor, given: &Parameters) -> Result<Filter, Turned> {
    let status = given.get("status").map(|text| {
        let names: Vec<_> = SessionStatus::ALL.iter().map(|status| status.as_str()).collect();
        let detail = || format!("is not a status; allowed: {}", names.join(", "));
        SessionStatus::parse(&text).ok_or_else(|| Error::invalid("status", detail()))
    });
    let user = given.get("user").filter(|_| visitor.reads.is_none());
    let user = user.map(|text| {
        let detail = "is not a user; it has at most 256 bytes and no invisible characters";
        UserId::parse(text).map_err(|_| Error::invalid("user", detail))
    });
    Ok(Filter {
        status: status.transpose()?,
        user: user.transpose()?,
    })
}

/// The path of a session's page.
fn path(id: PlanningSessionId) -> String {
    format!("{}/{id}", paths::SESSIONS)
}

/// A hash of what the page of a session shows and what changes by itself.
fn seen(session: &Session) -> String {
    let waits = session.waiting_for.as_deref().unwrap_or_default();
    let shown = serde_json::json!({
        "status": session.status,
        "version": session.plan_version,
        "plan": session.plan,
        "refinement": session.refinement,
        "waits": waits.iter().map(|wait| wait.action_id.to_string()).collect::<Vec<_>>(),
    });
    hex::encode(&Sha256::digest(shown.to_string())[..8])
}

/// The progress of a session: a frame of its page that refreshes itself. The page does not, because the visitor may be
/// reading a step or writing a reason in it.
pub(crate) async fn look(
    edge: Open,
    onlooker: Result<Onlooker, Turned>,
    id: Result<Id<PlanningSessionId>, Turned>,
    given: Parameters,
) -> Page {
    let page = id
        .as_ref()
        .map_or_else(|_| paths::SESSIONS.to_owned(), |Id(id)| path(*id));
    let found = async {
        let (Onlooker(visitor), Id(id)) = (onlooker?, id?);
        let found = edge.planning.session(&visitor.caller, visitor.reads.as_ref(), id);
        Ok(found.await?)
    };
    let (refreshes, status) = match found.await {
        Ok(session) => {
            let changed = given.get("seen") != Some(seen(&session));
            let status = html! {
                (state(&session))
                @if changed { " " a href=(page) target="_top" { "Show what is new" } }
            };
            (!session.status.has_ended(), status)
        }
        Err(Turned::LogIn(_) | Turned::Again(_)) => (
            false,
            html! { "You are logged out. " a href=(page) target="_top" { "Log in" } },
        ),
        Err(Turned::Error(error)) if error.problem.code == Code::NotFound => return Err(error.into()),
        Err(_) => (
            true,
            html! { "The session cannot be read now; gavel checks again in " (LOOK) " seconds." },
        ),
    };
    Ok(framed(view::in_frame("Progress", refreshes.then_some(LOOK), &status)))
}

/// The form names the version that its page shows, so a visitor confirms only what they have read.
pub(crate) async fn confirm(
    edge: Open,
    visitor: Visitor,
    form: Form,
    Id(session): Id<PlanningSessionId>,
    RequestName(request_id): RequestName,
) -> Page {
    let version: Option<u32> = form.get("version").and_then(query::number);
    let version = version.ok_or_else(|| Error::invalid("version", "does not match a button of the page"))?;
    let execute = ExecuteBody {
        plan_version: Some(version),
        ..ExecuteBody::default()
    };
    let meta = RequestMeta {
        request_id,
        traceparent: None,
        idempotency: None,
        background: true,
        shed: None,
    };
    let (planning, user) = (&edge.planning, visitor.reads.as_ref());
    let executed = planning.execute_plan(&visitor.caller, user, session, &execute, meta);
    let late = match executed.await {
        // The plan was confirmed before, by this visitor or by another.
        Ok(execution) => execution.begun.is_none(),
        Err(problem) if problem.is_of_moved_session() => true,
        Err(error) => return Err(error.into()),
    };
    Ok(back(session, late))
}

pub(crate) async fn cancel(edge: Open, visitor: Visitor, form: Form, Id(session): Id<PlanningSessionId>) -> Page {
    let reason = body::reason(form.text("reason"), "reason")?;
    let planning = &edge.planning;
    let ended = planning.cancel(&visitor.caller, visitor.reads.as_ref(), session, reason);
    let ended = ended.await?;
    let late = ended.status.has_ended() && ended.status != SessionStatus::Cancelled;
    Ok(back(session, late))
}

/// Returns to the page of the session. `late`: the session had changed before, and nothing was done.
fn back(session: PlanningSessionId, late: bool) -> HttpResponse {
    let late = if late { "?late=1" } else { "" };
    see(&format!("{}{late}", path(session)))
}

fn summary(session: &Session, zone: Tz) -> Markup {
    let title = format!("s-{}", session.session_id);
    html! {
        article.card.gone[session.status.has_ended()] aria-labelledby=(title) {
            div.heading {
                h2 #(title) dir="auto" {
                    a href={ (paths::SESSIONS) "/" (session.session_id) } { (words::beginning(&session.prompt, SHORT)) }
                }
            }
            dl.about {
                div { dt { "Status" } dd { b { (in_words(session.status.as_str())) } } }
                div { dt { "Repository" } dd { bdi { (words::beginning(&session.repo_url, SHORT)) } } }
                div { dt { "User" } dd { bdi { (words::text(&session.user)) } } }
                @if let Some(at) = &session.completed_at { div { dt { "Ended" } dd { (words::at(at.0, zone)) } } }
                @else { div { dt { "Time left" } dd { (left(session.time_left_ms)) } } }
                @if !session.plan.is_empty() { div { dt { "Tasks" } dd { (done(&session.plan)) } } }
            }
            @if let Some(reason) = &session.status_reason { p.state { (words::beginning(&reason.detail, SHORT)) } }
        }
    }
}

/// Rendered bytes of a text in a list.
const SHORT: usize = 512;

/// `AWAITING_CONFIRMATION` → `Awaiting confirmation`.
fn in_words(status: &str) -> String {
    words::name(&status.to_lowercase())
}

/// `2 of 3 done`.
fn done(tasks: &[Task]) -> String {
    let is_done = |task: &&Task| matches!(task.status, TaskStatus::Completed | TaskStatus::Obsolete);
    format!("{} of {} done", tasks.iter().filter(is_done).count(), tasks.len())
}

/// Time left, in milliseconds, as text.
fn left(ms: u64) -> String {
    let minutes = ms / 60_000;
    match (minutes / 1440, minutes % 1440 / 60, minutes % 60) {
        (0, 0, 0) if ms == 0 => "none".to_owned(),
        (0, 0, 0) => "less than a minute".to_owned(),
        (0, 0, minutes) => words::count(minutes, "minute"),
        (0, hours, minutes) => format!("{} {}", words::count(hours, "hour"), words::count(minutes, "minute")),
        (days, hours, _) => format!("{} {}", words::count(days, "day"), words::count(hours, "hour")),
    }
}

/// External texts as a list.
fn texts(title: &str, texts: &[String]) -> Markup {
    const MOST: usize = 60;
    const ROOM: usize = 2048;
    html! {
        @if !texts.is_empty() {
            h2 { (title) }
            ul.texts {
                @for text in texts.iter().take(MOST) { li dir="auto" { (words::beginning(text, ROOM)) } }
                @if texts.len() > MOST { li { (texts.len() - MOST) " more" } }
            }
        }
    }
}

// The log of a session: every call of every task, in order.

/// Rendered bytes of the arguments of a call.
const ARGUMENTS: usize = 2048;

/// Renders a page of the log; `path` is the address of the session's page.
pub(crate) fn log_page(actions: &api::Page<LoggedAction>, path: &str, zone: Tz) -> Markup {
    let last = actions.next_page_token.as_deref();
    html! {
        p.back { a href=(path) { "← The session" } }
        h1 { "Log" }
        p.lead { "Every call of the planner and of every task, in order, with how it ended and what allowed it." }
        @if actions.items.is_empty() { (nothing("Nothing was called yet.")) } @else { (table(&actions.items, zone)) }
        @if last.is_some() { (next(&address(&format!("{path}/log"), &[("after", last)]))) }
    }
}

/// The actions as a table.
fn table(actions: &[LoggedAction], zone: Tz) -> Markup {
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
            td { @if let Some(ms) = action.duration_ms { (words::took(ms)) } }
        }
    }
}

/// Seconds between two looks at a session.
const LOOK: u32 = 5;

/// How far a session is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_enough_to_read_at_a_glance() {
        for (ms, text) in [
            (0, "none"),
            (59_999, "less than a minute"),
            (60_000, "1 minute"),
            (7_260_000, "2 hours 1 minute"),
            (90_000_000, "1 day 1 hour"),
        ] {
            assert_eq!(left(ms), text);
        }
        for (ms, text) in [(7, "7 ms"), (41_230, "41.2 s"), (600_000, "10 minutes")] {
            assert_eq!(words::took(ms), text);
        }
        assert_eq!(in_words("AWAITING_CONFIRMATION"), "Awaiting confirmation");
    }
}
