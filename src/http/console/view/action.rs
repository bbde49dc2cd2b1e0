//! One action: the question, the answers one can give, and what became of it.

use std::sync::Arc;

use maud::{Markup, html};
use serde_json::Value;

use super::super::session::Visitor;
use super::room::{self, ALONE, IN_LIST, Room};
use super::{arguments, token, words};
use crate::domain::action::{Action, ActionStatus, DID_NOT_HAPPEN, Resolution, in_words};
use crate::domain::address::Recipients;
use crate::domain::tool::{FailureCode, Tool};
use crate::http::routes::Route;

/// What a card is made of.
pub(in crate::http::console) struct Card<'a> {
    pub(in crate::http::console) action: &'a Action,
    /// The tool as it is now.
    pub(in crate::http::console) tool: Option<Arc<Tool>>,
    pub(in crate::http::console) visitor: &'a Visitor,
    pub(in crate::http::console) now_us: i64,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http::console) enum Place {
    /// Among others.
    List,
    /// On a page of its own.
    Own,
}

/// Did the tool itself tell of the error? Of a call that never began, gavel did.
fn is_tools_own(action: &Action) -> bool {
    const TOOLS_OWN: [FailureCode; 4] = [
        FailureCode::ToolError,
        FailureCode::AuthRequired,
        FailureCode::Unsupported,
        FailureCode::InvalidArguments,
    ];
    let code = action.error_code.as_deref();
    action.started_at.is_some() && TOOLS_OWN.iter().any(|own| code == Some(own.as_str()))
}

/// A question, with the answers where it still waits.
pub(in crate::http::console) fn card(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    html! {
        article.card aria-labelledby={ "a-" (action.id) } {
            (heading(card, place))
            @if action.waits(card.now_us) { (warnings(card, place)) } @else { p.state { (state(action)) } }
            (body(card, place))
            @if let Some(id) = action.approval.filter(|_| action.waits(card.now_us)) {
                (answers(card, place, &id.to_string()))
            } @else if action.status == ActionStatus::InDoubt {
                (settle(card))
            }
        }
    }
}

/// An action in doubt.
pub(in crate::http::console) fn doubt(card: &Card<'_>) -> Markup {
    html! {
        article.card.doubt aria-labelledby={ "a-" (card.action.id) } {
            (heading(card, Place::List))
            p.state { (state(card.action)) }
            (body(card, Place::List))
            (settle(card))
        }
    }
}

impl Place {
    fn room(self) -> Room {
        match self {
            Self::List => IN_LIST,
            Self::Own => ALONE,
        }
    }
}

fn heading(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let title = words::text(&words::name(&action.tool));
    let own = action
        .approval
        .map(|id| format!("{}/{id}", Route::ConsoleApprovals.path()));
    html! {
        div.heading {
            @if place == Place::Own { h1 id={ "a-" (action.id) } { (title) } }
            @else {
                h3 id={ "a-" (action.id) } {
                    @if let Some(own) = own { a href=(own) { (title) } } @else { (title) }
                }
            }
            p.tool { (words::code(&action.tool)) " of " (words::code(&action.server)) }
        }
        dl.about {
            div { dt { "For" } dd { bdi { (words::text(&action.user)) } } }
            @if let Some(account) = &action.details.account {
                div { dt { "From account" } dd { bdi { (words::text(account)) } } }
            }
            div { dt { "Asked by" } dd { "the agent " bdi { (words::text(&action.agent)) } } }
            div { dt { "Asked" } dd { (words::at(action.created_at, card.visitor.zone)) " " small { (words::relative(action.created_at, card.now_us)) } } }
            @if let Some(at) = action.started_at.filter(|_| action.status == ActionStatus::InDoubt) {
                div { dt { "Begun" } dd { (words::at(at, card.visitor.zone)) } }
            }
            @if let Some(at) = action.expires_at.filter(|_| action.waits(card.now_us)) {
                div { dt { "Answer by" } dd { (words::at(at, card.visitor.zone)) " " small { (words::relative(at, card.now_us)) } } }
            }
        }
    }
}

/// What is odd about it, in plain sight.
fn warnings(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let fits = room::must_see_fits(&action.details, place.room());
    let changed = card
        .tool
        .as_ref()
        .is_some_and(|tool| *tool.digest != *action.tool_digest);
    html! {
        @if changed || !fits || card.tool.is_none() || !action.details.warnings.is_empty() {
            div.warnings role="note" {
                p { b { "Look twice" } }
                ul {
                    @if fits {
                        @for warning in &action.details.warnings { li { (words::text(&words::placed(warning))) } }
                    } @else {
                        li { (too_much(card, place)) }
                    }
                    @if changed {
                        li { "The tool has changed since this was asked: approved, it will not run." }
                    }
                    @if card.tool.is_none() {
                        li { "The tool is not offered by its server now; approved, it may fail." }
                    }
                }
            }
        }
    }
}

/// That this page cannot show all that an approver must have seen.
fn too_much(card: &Card<'_>, place: Place) -> Markup {
    let details = &card.action.details;
    let recipients = details
        .recipients
        .as_ref()
        .map_or(0, |recipients| recipients.all().len());
    let own = card.action.approval.filter(|_| place == Place::List);
    html! {
        "This page has no room for all that you must see to approve this: it has "
        (words::count(details.warnings.len() as u64, "warning")) " and " (words::count(recipients as u64, "recipient"))
        ". So it cannot be approved here. "
        @if let Some(id) = own { a href={ (Route::ConsoleApprovals.path()) "/" (id) } { "Its own page" } " has more room. " }
        code { "gavel approvals list" } " and " code { "GET /api/agent/approvals/pending" } " show all of it."
    }
}

fn body(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let fits = room::must_see_fits(&action.details, place.room());
    let given: Value = serde_json::from_str(action.arguments.get()).unwrap_or_default();
    let fit = room::fit(&given, place.room());
    let recipients = action.details.recipients.as_ref();
    html! {
        @if !action.details.reason.is_empty() {
            p.why { b { "Why it needs an approval: " } (words::beginning(&action.details.reason, place.room().must_see())) }
        }
        @if let Some(recipients) = recipients {
            p.reach { b { "Goes to " (words::count(recipients.all().len() as u64, "recipient")) ":" } " " @if fits { (people(recipients, card.tool.as_deref())) } @else { (first(recipients)) } }
        }
        (fit.note())
        (arguments::arguments(card.tool.as_deref(), &fit.arguments, fit.cuts.is_empty(), card.visitor.zone))
        details.exactly {
            summary { "Exactly what is sent" }
            (arguments::raw(&fit.arguments))
            @if let Some(tool) = card.tool.as_ref().filter(|tool| !tool.description.is_empty()) {
                p { "What the tool says of itself: " q { (words::beginning(&tool.description, room::TEXT)) } }
            }
        }
        @if let Some(thread) = action.thread.filter(|_| card.visitor.may_read(&action.user)) {
            p { a href={ "/console/threads/" (thread) } { "Read the thread it comes from" } }
        }
    }
}

/// Addresses, each after the name of the argument that it stands in; in the order in which the tool's settings name these.
pub(super) fn people(recipients: &Recipients, tool: Option<&Tool>) -> Markup {
    let paths = tool.map(|tool| tool.recipients.as_slice()).unwrap_or_default();
    let mut arguments: Vec<_> = recipients.by_argument().collect();
    arguments.sort_by_key(|(argument, _)| paths.iter().position(|path| path.to_string() == **argument));
    html! {
        @for (n, (argument, addresses)) in arguments.into_iter().enumerate() {
            @if n > 0 { "; " }
            (words::text(&words::name(&argument.replace("[]", "")))) ": "
            @for (n, one) in addresses.iter().enumerate() { @if n > 0 { ", " } bdi.address { (words::text(one)) } }
        }
    }
}

fn answers(card: &Card<'_>, place: Place, approval: &str) -> Markup {
    let action = card.action;
    let path = format!("{}/{approval}", Route::ConsoleApprovals.path());
    let back = if place == Place::Own { "own" } else { "list" };
    let form = |decision: Resolution, inner: Markup| {
        html! {
            form method="post" action=(path) {
                (token(card.visitor))
                input type="hidden" name="decision" value=(decision.as_str());
                input type="hidden" name="back" value=(back);
                (inner)
            }
        }
    };
    let grantable = action
        .details
        .recipients
        .as_ref()
        .filter(|_| action.details.is_grantable());
    let what = format!("a-{}", action.id);
    let fits = room::must_see_fits(&action.details, place.room());
    html! {
        div.answers {
            @if fits {
                (form(Resolution::ApproveOnce, html! {
                    button.yes type="submit" aria-describedby=(what) { "Approve once" }
                }))
            }
            @if let Some(recipients) = grantable.filter(|_| fits) {
                details {
                    summary.button { "Always for these recipients…" }
                    (form(Resolution::ApproveAndAlwaysAllowRecipient, html! {
                        p {
                            "Approves this, and from now on " (words::code(&action.tool)) " may go out for "
                            b { bdi { (words::text(&action.user)) } } " without asking, whatever it says, to exactly "
                            (people(recipients, card.tool.as_deref())) ". One more recipient, one less, or one of them in another field asks again. It can be taken back under Always allowed."
                        }
                        button.yes type="submit" aria-describedby=(what) { "Approve, and always for these" }
                    }))
                }
            }
            details {
                summary.button { "Reject…" }
                (form(Resolution::Reject, html! {
                    label for={ "r-" (action.id) } { "Why? The agent is told. May be left empty." }
                    textarea #{ "r-" (action.id) } name="reason" rows="3" maxlength="1000" {}
                    button.no type="submit" aria-describedby=(what) { "Reject" }
                }))
            }
        }
    }
}

/// How a person settles a doubt: two steps, since nobody asks again.
fn settle(card: &Card<'_>) -> Markup {
    let action = card.action;
    let path = format!("/console/actions/{}", action.id);
    let form = |happened: &str, inner: Markup| {
        html! {
            form method="post" action=(path) {
                (token(card.visitor))
                input type="hidden" name="happened" value=(happened);
                (inner)
            }
        }
    };
    html! {
        @if action.thread.is_none() {
            p {
                "If its run " (words::code(&action.root.to_string())) " is paused, say what happened when you resume it: "
                code { "gavel runs resume" } ", or " code { "POST /api/runs/ID/resume" } ". If it is over, say it here."
            }
        }
        div.answers {
            details {
                summary.button { "It happened…" }
                (form("yes", html! {
                    p { "You have looked, and it had its effect. It will count as done." }
                    button.yes type="submit" { "Yes, it happened" }
                }))
            }
            details {
                summary.button { "It did not happen…" }
                (form("no", html! {
                    p { "You have looked, and nothing was done. It will count as failed, and is not sent again." }
                    button.no type="submit" { "No, it did not happen" }
                }))
            }
        }
    }
}

/// Where it is, in words.
pub(super) fn state(action: &Action) -> Markup {
    let by = html! {
        @if let Some(by) = &action.resolved_by { " by " b { bdi { (words::text(by)) } } }
    };
    let always = action.resolution == Some(Resolution::ApproveAndAlwaysAllowRecipient);
    let approval = html! {
        @if action.resolution.is_some() { "Approved" (by) @if always { ", and always allowed for these recipients" } }
        @else if action.grant.is_some() { "Always allowed" }
        @else { "Needed no approval" }
    };
    html! {
        @match action.status {
            ActionStatus::Planned => "Not judged yet.",
            ActionStatus::AwaitingConfirmation => "It expired and was not executed.",
            ActionStatus::Approved => { (approval) "; it has not begun yet." },
            ActionStatus::Executing => { (approval) ", and still running." },
            ActionStatus::Completed => {
                (approval)
                @if let Some(by) = &action.settled_by {
                    ", and begun; its answer was lost, and " b { bdi { (words::text(by)) } } " says that it happened."
                } @else { ", and done." }
            },
            ActionStatus::Failed => {
                (approval) ", and it failed"
                @if let Some(code) = &action.error_code { " (" (words::code(code)) ")" }
                @if action.error_message.as_deref() == Some(DID_NOT_HAPPEN) { ": " b { bdi { (words::text(action.settled_by.as_deref().unwrap_or("a person"))) } } " says that it did not happen." }
                @else {
                    // An error of the tool's own says nothing of what it did before.
                    @if is_tools_own(action) {
                        ". Whether a part of it was done, its server may say."
                    } @else { ": it had no effect." }
                    @if let Some(words) = &action.error_message { " It said: " q { (words::beginning(&in_words(words), room::TEXT)) } }
                }
            },
            ActionStatus::InDoubt => {
                (approval) ", and begun; its answer was lost, so it is not known whether it happened. It is not sent again. "
                "Look where its effect would be seen, and say what you found."
            },
            ActionStatus::Rejected => {
                "Rejected" (by) @if let Some(reason) = &action.reason { ": " q { (words::text(reason)) } } ". It was not run."
            },
            ActionStatus::Expired if action.resolution.is_some() => { (approval) ", and it could not begin in time. It was not run." },
            ActionStatus::Expired => "Nobody answered in time, or the run was over first. It was not run.",
        }
    }
}

/// The first of those whom it goes to.
pub(super) fn first(recipients: &Recipients) -> Markup {
    const MOST: usize = 3;
    let all = recipients.all();
    html! {
        @for (n, one) in all.iter().take(MOST).enumerate() { @if n > 0 { ", " } bdi.address { (words::text(one)) } }
        @if all.len() > MOST { " and " (all.len() - MOST) " more" }
    }
}

/// What became of what was just answered, as the store has it.
pub(in crate::http::console) fn flash(action: &Action, visitor: &Visitor, late: bool) -> Markup {
    let others = action.resolved_by.as_deref().is_some_and(|by| by != visitor.name);
    let good = matches!(
        action.status,
        ActionStatus::Completed | ActionStatus::Rejected | ActionStatus::Approved | ActionStatus::Executing
    );
    let bad = late || !good;
    let link = action
        .approval
        .map(|id| format!("{}/{id}", Route::ConsoleApprovals.path()));
    html! {
        div.flash.bad[bad] role="status" {
            p {
                b { (words::text(&words::name(&action.tool))) }
                @if let Some(recipients) = &action.details.recipients { " to " (first(recipients)) }
                ": "
                @if late && others { "your answer came too late. " }
                @else if late { "this was settled before. " }
                @if action.status == ActionStatus::AwaitingConfirmation { "it still waits for an answer." }
                @else { (state(action)) }
                @if let Some(link) = link { " " a href=(link) { "See it" } }
            }
        }
    }
}
