//! The page of one session.

use std::collections::HashMap;

use chrono_tz::Tz;
use maud::{Markup, html};
use url::Url;

use crate::api::planning::{Session, SessionScope, Step};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskId;
use crate::domain::planning_session::SessionStatus;
use crate::http::Edge;
use crate::http::console::approvals::{flash, of};
use crate::http::console::planning::task::{self, Steps};
use crate::http::console::planning::versions::{latest, list};
use crate::http::console::planning::{done, in_words, left, seen, table, texts};
use crate::http::console::session::Visitor;
use crate::http::console::view::action::{Place, card};
use crate::http::console::view::room::TEXT;
use crate::http::console::view::{address, form, unfold, words};
use crate::http::console::{Page, Parameters, Turned, nothing, paths};
use crate::http::planning::read::numbered;
use crate::http::request::{Id, Open};
use crate::surfaces::problem::Problem;

/// Most steps of all tasks on this page; each task has a page of its own.
const MOST_STEPS: u32 = 60;
/// Most actions of the log on this page.
const MOST_ACTIONS: usize = 50;
/// Most actions that wait for a person, each with its forms.
const MOST_CARDS: usize = 10;

pub(crate) async fn show(edge: Open, visitor: Visitor, Id(id): Id<PlanningSessionId>, given: Parameters) -> Page {
    let planning = &edge.planning;
    let session = planning.session(&visitor.caller, visitor.reads.as_ref(), id).await?;
    let range = (0, MOST_ACTIONS + 1);
    let actions = planning.log(&visitor.caller, visitor.reads.as_ref(), id, range).await?;
    let actions = numbered(actions, MOST_ACTIONS, |action| action.n.to_string());
    let (flash, cards) = (
        flash(&edge, &visitor, &given).await?,
        cards(&edge, &visitor, &session).await?,
    );
    let steps = steps(&edge, &visitor, &session).await?;
    let history = latest(&edge, &visitor, id, session.plan_version).await?;
    let (path, zone) = (super::path(id), visitor.zone);
    let link = |address: &str| linked(planning.link(address), address);
    let waits = session.waiting_for.as_ref().map_or(0, Vec::len);
    let news = address(&format!("{path}/news"), &[("seen", Some(&seen(&session)))]);
    let pull_requests = session.pull_requests.as_deref().unwrap_or_default();
    let body = html! {
        @if let Some(flash) = flash { (flash) }
        @if is_late(&given) {
            div.flash.bad role="status" { p { "The session had changed before you answered, and nothing was done. This is its current state." } }
        }
        p.back { a href=(paths::SESSIONS) { "← All planning sessions" } }
        h1 { "Planning session" }
        (about(&session, &link(&session.repo_url), zone))
        @if !session.status.has_ended() { iframe.news.progress src=(news) title="Progress of this session" {} }
        @if waits > 0 {
            section aria-labelledby="waits" {
                h2 #waits { "Waits for a person " span.count { (waits) } }
                @for card in &cards { (card) }
                @if waits > cards.len() { p { "There are more; they appear when these are answered." } }
            }
        }
        (plan(&session, &steps, &path, zone))
        (texts("Assumptions", &session.assumptions))
        (texts("Risks", &session.risks))
        // An approver who only reads the session does not change it.
        @if visitor.reads.as_ref().is_none_or(|user| user.as_str() == session.user) { (buttons(&visitor, &session, &path)) }
        @if !pull_requests.is_empty() {
            h2 { "Pull requests" }
            ul.texts { @for one in pull_requests.iter().take(100) { li { "#" (one.number) " " (link(&one.url)) } } }
        }
        @if !actions.items.is_empty() {
            h2 { "Log" }
            (table(&actions.items, zone))
            @if actions.next_page_token.is_some() { p { a href={ (path) "/log" } { "The whole log" } } }
        }
        @if !history.is_empty() {
            h2 { "History of the plan" }
            (list(&path, &history, zone))
            p { a href={ (path) "/versions" } { "All versions, any two side by side" } }
        }
    };
    let status = in_words(session.status.as_str());
    let title = match waits {
        0 => format!("{status} · Planning session"),
        _ => format!("({waits}) {status} · Planning session"),
    };
    Ok(visitor.page(&title, &body))
}

/// Did a button of this page come too late? The forms of an action say which action they are about.
fn is_late(given: &Parameters) -> bool {
    let has = |name: &str| given.get(name).is_some();
    has("late") && !has("about") && !has("settled")
}

/// The actions that wait for a person, with the forms to answer.
async fn cards(edge: &Edge, visitor: &Visitor, session: &Session) -> Result<Vec<Markup>, Turned> {
    let (approvals, now) = (&edge.approvals, edge.runs.now_us());
    let place = Place::Session(session.session_id);
    let mut cards = Vec::new();
    for wait in session.waiting_for.iter().flatten().take(MOST_CARDS) {
        let found = approvals.action(&visitor.caller, visitor.user.clone(), wait.action_id);
        // None: it was deleted since.
        if let Some(action) = Problem::or_none(found.await)? {
            cards.push(card(&of(edge, visitor, &action, now), place));
        }
    }
    Ok(cards)
}

/// The steps of the latest tasks, as far as there is room.
async fn steps(edge: &Edge, visitor: &Visitor, session: &Session) -> Result<HashMap<TaskId, Vec<Step>>, Turned> {
    let planning = &edge.planning;
    let mut begun: Vec<_> = session.plan.iter().filter(|task| task.run_id.is_some()).collect();
    begun.sort_by_key(|task| std::cmp::Reverse(task.started_at));
    let (mut steps, mut left) = (HashMap::new(), MOST_STEPS);
    for task in begun {
        let Some(less) = left.checked_sub(task.steps) else {
            break;
        };
        left = less;
        let (reads, id) = (visitor.reads.as_ref(), session.session_id);
        let found = planning.task(&visitor.caller, reads, id, (task.id, 0));
        // None: a change of the plan removed it since.
        if let Some(found) = Problem::or_none(found.await)? {
            steps.insert(task.id, found.react_history);
        }
    }
    Ok(steps)
}

/// Most rendered bytes of a goal.
const GOAL: usize = 64 * 1024;

fn about(session: &Session, repository: &Markup, zone: Tz) -> Markup {
    let usage = session.usage;
    html! {
        div.prose.goal dir="auto" { (words::beginning(&session.prompt, GOAL)) }
        dl.about {
            div { dt { "Status" } dd { b { (in_words(session.status.as_str())) } } }
            div { dt { "Repository" } dd { (repository) } }
            div { dt { "User" } dd { bdi { (words::text(&session.user)) } } }
            div {
                dt { "Deadline" }
                dd {
                    (words::at(session.deadline.0, zone))
                    @if !session.status.has_ended() { " " small { (left(session.time_left_ms)) " left" } }
                }
            }
            @if let Some(at) = &session.confirm_by { div { dt { "Confirm by" } dd { (words::at(at.0, zone)) } } }
            @if !session.plan.is_empty() { div { dt { "Tasks" } dd { (done(&session.plan)) } } }
            div { dt { "Created" } dd { (words::at(session.created_at.0, zone)) } }
            @if let Some(at) = &session.started_at {
                div {
                    dt { "Confirmed" }
                    dd {
                        (words::at(at.0, zone))
                        @if let Some(by) = confirmed_by(session) { " by " bdi { (words::text(by)) } }
                    }
                }
            }
            @if let Some(at) = &session.completed_at { div { dt { "Ended" } dd { (words::at(at.0, zone)) } } }
            div { dt { "Model calls" } dd { (usage.model_calls) } }
            div { dt { "Tokens" } dd { (usage.input_tokens) " in, " (usage.output_tokens + usage.thought_tokens) " out" } }
        }
        @if let Some(reason) = &session.status_reason {
            p.state dir="auto" { (in_words(reason.code.as_str())) ": " (words::beginning(&reason.detail, TEXT)) }
        }
        @if let Some(refinement) = &session.refinement {
            div.warnings role="note" {
                p dir="auto" {
                    b { "The last refinement failed, and the plan is as it was. " }
                    (in_words(refinement.code.as_str())) ": " (words::beginning(&refinement.detail, TEXT))
                }
            }
        }
        @if let Some(result) = session.result.as_ref().filter(|result| !result.cleanup.left.is_empty()) {
            div.warnings role="note" {
                p { b { "The cleanup left something, which its server removes later:" } }
                ul { @for left in result.cleanup.left.iter().take(50) { li dir="auto" { (words::beginning(left, 1024)) } } }
            }
        }
    }
}

fn confirmed_by(session: &Session) -> Option<&str> {
    let confirmed = session.scope.as_ref()?.confirmed.as_ref()?;
    Some(&confirmed.by)
}

/// An external address, as a link if it is on the configured host.
fn linked(url: Option<Url>, address: &str) -> Markup {
    let text = html! { bdi { (words::beginning(address, TEXT)) } };
    html! {
        @if let Some(url) = url { a href=(url.as_str()) rel="noreferrer noopener" { (text) } } @else { (text) }
    }
}

fn plan(session: &Session, steps: &HashMap<TaskId, Vec<Step>>, path: &str, zone: Tz) -> Markup {
    let steps = |id: TaskId| steps.get(&id).map(|steps| Steps::Folded(steps));
    html! {
        h2 { "Plan" @if session.plan_version > 0 { " " span.count { "version " (session.plan_version) } } }
        @if session.plan.is_empty() { (nothing("There is no plan yet.")) }
        @if !session.summary.is_empty() { div.prose.summary dir="auto" { (words::beginning(&session.summary, TEXT)) } }
        @for one in &session.plan {
            @let begun = one.run_id.map(|_| steps(one.id).unwrap_or(Steps::Elsewhere));
            (task::card(one, begun.as_ref(), path, zone))
        }
    }
}

fn buttons(visitor: &Visitor, session: &Session, path: &str) -> Markup {
    let can_confirm = session.status == SessionStatus::AwaitingConfirmation && session.time_left_ms > 0;
    html! {
        @if can_confirm { (confirm(visitor, session, path)) }
        @if !session.status.has_ended() {
            div.answers {
                (unfold("Cancel the session…", &form(visitor, &format!("{path}/cancel"), &[], &html! {
                    p { "gavel interrupts the call in progress and begins no other. The plan and its history remain." }
                    label for="reason" { "Reason (optional)" }
                    textarea #reason name="reason" rows="3" maxlength="1000" {}
                    button.no type="submit" { "Cancel the session" }
                })))
            }
        }
    }
}

/// What the confirmation allows, and the form. It names the version that this page shows: another one is not confirmed
/// by it.
fn confirm(visitor: &Visitor, session: &Session, path: &str) -> Markup {
    html! {
        section.card.confirm aria-labelledby="confirm" {
            h2 #confirm { "Confirm version " (session.plan_version) }
            @if let Some(scope) = &session.scope {
                p {
                    "gavel then works through these tasks by itself until "
                    (words::at(session.deadline.0, visitor.zone))
                    ". The confirmation allows:"
                }
                (allowed(scope))
                @if let Some(lookups) = session.lookups.as_ref().filter(|lookups| !lookups.is_empty()) {
                    p { b { "To make this plan, the planner asked the open world:" } }
                    (table(lookups, visitor.zone))
                }
                p { "Any other action with side effects waits for an approval. The plan can no longer be changed by hand." }
                div.answers {
                    (form(visitor, &format!("{path}/confirm"), &[("version", &session.plan_version.to_string())], &html! {
                        button.yes type="submit" aria-describedby="confirm allowed" { "Confirm and begin" }
                    }))
                }
            } @else {
                p {
                    "This plan cannot be confirmed now: the agent that works on tasks is unavailable, or its repository is on "
                    "another host than gavel's. Ask the operator."
                }
            }
        }
    }
}

/// Where the work may act, with which tools, and which of them ask anyway.
fn allowed(scope: &SessionScope) -> Markup {
    html! {
        dl.about #allowed {
            div { dt { "Repository" } dd { bdi { (words::text(&scope.repository)) } } }
            div { dt { "Branches" } dd { (words::code(&scope.branches)) } }
            div { dt { (words::count(scope.tools.len() as u64, "tool")) } dd { (words::codes(&scope.tools)) } }
            @if !scope.not_bound.is_empty() { div { dt { "Not bound to it" } dd { (words::codes(&scope.not_bound)) } } }
            div {
                dt { "Asks before" }
                dd { @if scope.ask_first.is_empty() { "none of these tools on every call" } @else { (words::codes(&scope.ask_first)) } }
            }
            @if !scope.may_ask.is_empty() { div { dt { "May ask before" } dd { (words::codes(&scope.may_ask)) } } }
        }
    }
}
