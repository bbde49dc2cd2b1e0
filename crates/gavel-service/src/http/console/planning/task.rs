//! The page of one task of a session, and that of its log.

use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api;
use crate::api::planning::{Step, StepReflection};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::{Task, TaskChange, TaskStatus};
use crate::http::console::planning::{SHORT, in_words, log_page, path};
use crate::http::console::session::Visitor;
use crate::http::console::view::room::TEXT;
use crate::http::console::view::{address, next, words};
use crate::http::console::{Page, Parameters, nothing};
use crate::http::planning;
use crate::http::planning::read::numbered;
use crate::http::request::{Id, Open};

/// Steps per page.
const STEPS: usize = 25;
/// Actions per page.
const ACTIONS: usize = 100;

pub(crate) async fn task(
    edge: Open,
    visitor: Visitor,
    Id(planning::read::Task(session, task)): Id<planning::read::Task>,
    given: Parameters,
) -> Page {
    let planning = &edge.planning;
    let found = planning.task(
        &visitor.caller,
        visitor.reads.as_ref(),
        session,
        (task, given.number("after").unwrap_or(0)),
    );
    let found = found.await?;
    let steps = numbered(found.react_history, STEPS, |step| step.n.to_string());
    let body = task_page(&found.task, &steps, &path(session), visitor.zone);
    Ok(visitor.page(&found.task.title, &body))
}

pub(crate) async fn log(edge: Open, visitor: Visitor, Id(session): Id<PlanningSessionId>, given: Parameters) -> Page {
    let planning = &edge.planning;
    let range = (given.number("after").unwrap_or(0), ACTIONS + 1);
    let found = planning.log(&visitor.caller, visitor.reads.as_ref(), session, range);
    let actions = numbered(found.await?, ACTIONS, |action| action.n.to_string());
    let body = log_page(&actions, &path(session), visitor.zone);
    Ok(visitor.page("Log", &body))
}

/// Rendered bytes of each text of a step: on the page of its session, and on that of its task. An entry of a list has a
/// quarter of it.
const SHORTENED: usize = 1536;
const ROOMY: usize = 8 * 1024;

/// Where a task is shown.
pub(crate) enum Steps<'a> {
    /// Folded, below the task.
    Folded(&'a [Step]),
    /// On the page of the task alone.
    Elsewhere,
}

/// Renders a task of a session; `path` is the address of the session's page.
pub(crate) fn card(task: &Task, steps: Option<&Steps<'_>>, path: &str, zone: Tz) -> Markup {
    let title = format!("t-{}", task.id);
    let own = format!("{path}/tasks/{}", task.id);
    html! {
        article.card.task.(class(task.status)) aria-labelledby=(title) {
            div.heading {
                h3 #(title) dir="auto" { (task.id.to_string()) " " (words::text(&task.title)) }
                p.tool { (in_words(task.status.as_str())) }
            }
            (content(task, zone))
            @match steps {
                Some(Steps::Folded(steps)) => {
                    details.steps {
                        summary { (words::count(task.steps.into(), "step")) }
                        (step_list(steps, SHORTENED, zone))
                        p { a href=(own) { "The steps of " (task.id.to_string()) " with more of each text" } }
                    }
                },
                Some(Steps::Elsewhere) => p { a href=(own) { (words::count(task.steps.into(), "step")) } },
                None => {},
            }
        }
    }
}

fn class(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Pending => "pending",
        TaskStatus::InProgress => "at-work",
        TaskStatus::Completed => "done",
        TaskStatus::Failed => "failed",
        TaskStatus::Obsolete => "gone",
    }
}

/// What a task must reach, and how it ended. A visitor confirms these texts, so they are never cut.
fn content(task: &Task, zone: Tz) -> Markup {
    html! {
        div.prose dir="auto" { (words::text(&task.goal)) }
        dl.about {
            div { dt { "Done when" } dd dir="auto" { (words::text(&task.done_when)) } }
            div { dt { "Tools" } dd { (words::codes(&task.tools)) } }
            @if let Some(replaced) = task.replaces { div { dt { "Replaces" } dd { (replaced.to_string()) } } }
            @if let Some(at) = &task.started_at { div { dt { "Started" } dd { (words::at(at.0, zone)) } } }
            @if let Some(at) = &task.completed_at { div { dt { "Ended" } dd { (words::at(at.0, zone)) } } }
        }
        @if let Some(reason) = &task.status_reason {
            p.state dir="auto" { (in_words(reason.code.as_str())) ": " (words::beginning(&reason.detail, TEXT)) }
        }
    }
}

/// Renders the page of a task; `path` is the address of the session's page.
pub(crate) fn task_page(task: &Task, steps: &api::Page<Step>, path: &str, zone: Tz) -> Markup {
    let own = format!("{path}/tasks/{}", task.id);
    let last = steps.next_page_token.as_deref();
    html! {
        p.back { a href=(path) { "← The session" } }
        h1 dir="auto" { (task.id.to_string()) " " (words::text(&task.title)) }
        p.state { b { (in_words(task.status.as_str())) } }
        (content(task, zone))
        h2 { "Steps" }
        @if steps.items.is_empty() { (nothing("There are no steps yet.")) }
        (step_list(&steps.items, ROOMY, zone))
        @if last.is_some() { (next(&address(&own, &[("after", last)]))) }
    }
}

fn step_list(steps: &[Step], room: usize, zone: Tz) -> Markup {
    html! { ol.steps { @for step in steps { li value=(step.n) { (one_step(step, room, zone)) } } } }
}

fn one_step(step: &Step, room: usize, zone: Tz) -> Markup {
    html! {
        p.said-by {
            b { "Step " (step.n) }
            @if let Some(state) = step.state { " · " (in_words(state.as_str())) }
            @if let Some(at) = &step.started_at { " · " (words::at(at.0, zone)) }
            @if let Some(ms) = step.duration_ms { " · " (words::took(ms)) }
        }
        @if let Some(reason) = &step.reason { (part("Reason", html! { div.prose dir="auto" { (words::beginning(reason, room)) } })) }
        @if let Some(action) = &step.action {
            (part("Call", html! { (words::code(&action.tool)) pre.raw dir="auto" { (words::beginning(&readable(&action.arguments), room)) } }))
        }
        @if let Some(seen) = &step.observation {
            (part("Result", html! { pre.raw dir="auto" { (words::beginning(&readable(seen), room)) } }))
        }
        @if let Some(reflection) = &step.reflection { (part("Reflection", concluded(reflection, room))) }
    }
}

fn part(name: &str, content: Markup) -> Markup {
    html! { div.part { p.name { (name) } (content) } }
}

fn concluded(reflection: &StepReflection, room: usize) -> Markup {
    let entry = room / 4;
    html! {
        div.prose dir="auto" { (words::beginning(&reflection.summary, room)) }
        @if reflection.is_task_complete { p { b { "The task is done." } } }
        @if let Some(why) = &reflection.give_up { p dir="auto" { b { "It gives up: " } (words::beginning(why, room)) } }
        @if !reflection.evidence.is_empty() {
            p { "Evidence:" }
            ul {
                @for evidence in &reflection.evidence {
                    li dir="auto" { "step " (evidence.observation) " shows " q { (words::beginning(&evidence.quote, entry)) } }
                }
            }
        }
        @if !reflection.learnings.is_empty() {
            p { "Learned:" }
            ul { @for text in &reflection.learnings { li dir="auto" { (words::beginning(text, entry)) } } }
        }
        @if !reflection.plan_changes.is_empty() {
            p { "Changes the plan:" }
            ul { @for change in &reflection.plan_changes { li dir="auto" { (changed(change)) } } }
        }
    }
}

fn changed(change: &TaskChange) -> Markup {
    html! {
        @match change {
            TaskChange::Add { title, replaces: None, .. } => { "adds " q { (words::beginning(title, SHORT)) } },
            TaskChange::Add { title, replaces: Some(task), .. } => { "replaces " (task.to_string()) " by " q { (words::beginning(title, SHORT)) } },
            TaskChange::Modify { task, .. } => { "changes " (task.to_string()) },
            TaskChange::Obsolete { task, .. } => { "makes " (task.to_string()) " obsolete" },
        }
        ": " (words::beginning(change.why(), SHORT))
    }
}

/// JSON for people: a text without quotes and escapes, anything else with line breaks.
fn readable(raw: &RawValue) -> String {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => text,
        Ok(value) => serde_json::to_string_pretty(&value).unwrap_or_else(|_| raw.get().to_owned()),
        Err(_) => raw.get().to_owned(),
    }
}
