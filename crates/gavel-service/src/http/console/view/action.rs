//! One action: the approval request, the possible decisions, and the outcome.

use std::collections::BTreeSet;
use std::sync::Arc;

use maud::{Markup, html};
use serde_json::Value;

use crate::domain::action::{Action, ActionStatus, DID_NOT_HAPPEN, Resolution, in_words};
use crate::domain::address::Recipients;
use crate::domain::ids::PlanningSessionId;
use crate::domain::tool::{FailureCode, Tool};
use crate::http::console::paths;
use crate::http::console::session::Visitor;
use crate::http::console::view::arguments::{self, Clock};
use crate::http::console::view::room::{self, ALONE, IN_LIST, Room};
use crate::http::console::view::{form, unfold, words};

/// Most domains of recipients that are named; the rest are counted.
const MOST_DOMAINS: usize = 6;

/// The data of a card.
pub(crate) struct Card<'a> {
    pub(crate) action: &'a Action,
    /// The current definition of the tool.
    pub(crate) tool: Option<Arc<Tool>>,
    pub(crate) visitor: &'a Visitor,
    pub(crate) now_us: i64,
}

/// Whether the tool itself reported the error; errors of a call that never started come from gavel.
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

/// An action, with the forms that resolve it while it waits, or that settle it while its outcome is unknown.
pub(crate) fn card(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    html! {
        article.card.doubt[action.status == ActionStatus::InDoubt] aria-labelledby={ "a-" (action.id) } {
            (heading(card, place))
            @if !action.waits(card.now_us) { p.state { (state(card)) } }
            (body(card, place))
            @if let Some(id) = action.approval.filter(|_| action.waits(card.now_us)) {
                (warnings(card, place))
                (answers(card, place, &id.to_string()))
            } @else if action.status == ActionStatus::InDoubt {
                (settle(card, place))
            }
        }
    }
}

fn heading(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    html! {
        div.heading {
            @if place == Place::Own { h1 id={ "a-" (action.id) } { (title(card)) } }
            @else { h3 id={ "a-" (action.id) } { a href=(link(action)) { (title(card)) } } }
            p.tool { (words::code(&action.tool)) " of " (words::code(&action.server)) }
        }
        dl.about {
            div { dt { "For" } dd { bdi { (words::text(&action.user)) } } }
            @if let Some(account) = &action.details.account {
                div { dt { "From account" } dd { bdi { (words::text(account)) } } }
            }
            div { dt { "Requested by" } dd { "the agent " bdi { (words::text(&action.agent)) } } }
            div { dt { "Requested" } dd { (words::at(action.created_at, card.visitor.zone)) " " small { (words::relative(action.created_at, card.now_us)) } } }
            @if let Some(at) = action.started_at.filter(|_| action.status == ActionStatus::InDoubt) {
                div { dt { "Started" } dd { (words::at(at, card.visitor.zone)) } }
            }
            @if let Some(at) = action.expires_at.filter(|_| action.waits(card.now_us)) {
                div { dt { "Decide by" } dd { (words::at(at, card.visitor.zone)) " " small { (words::relative(at, card.now_us)) } } }
            }
        }
    }
}

/// The tool's own title, else its name in words. The name itself is always beside it: a title is only a server's word.
fn title(card: &Card<'_>) -> Markup {
    match card.tool.as_ref().and_then(|tool| tool.title.as_deref()) {
        Some(title) => words::text(title),
        None => words::text(&words::name(&card.action.tool)),
    }
}

/// The page of the action.
fn link(action: &Action) -> String {
    match action.approval {
        Some(id) => format!("{}/{id}", paths::APPROVALS),
        None => format!("/console/actions/{}", action.id),
    }
}

/// How many warnings the approver must read.
fn warning_count(card: &Card<'_>) -> u64 {
    let own = usize::from(has_changed(card)) + usize::from(card.tool.is_none());
    (card.action.details.warnings.len() + own) as u64
}

/// Whether the tool has changed since the request.
fn has_changed(card: &Card<'_>) -> bool {
    let tool = card.tool.as_ref();
    tool.is_some_and(|tool| *tool.digest != *card.action.tool_digest)
}

/// Shows what could mislead the approver.
fn warnings(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let fits = room::must_see_fits(&action.details, place.room());
    html! {
        @if !fits || warning_count(card) > 0 {
            div.warnings role="note" {
                p { b { "Check carefully" } }
                ul {
                    @if fits {
                        @for warning in &action.details.warnings { li { (words::text(&words::placed(warning))) } }
                    } @else {
                        li { (too_much(card, place)) }
                    }
                    @if has_changed(card) {
                        li { "The tool has changed since this request: even if approved, the action will not be executed." }
                    }
                    @if card.tool.is_none() {
                        li { "The server does not offer this tool now; if approved, the action may fail." }
                    }
                }
            }
        }
    }
}

/// The notice that this page cannot show everything an approver must see.
fn too_much(card: &Card<'_>, place: Place) -> Markup {
    let details = &card.action.details;
    let recipients = details
        .recipients
        .as_ref()
        .map_or(0, |recipients| recipients.all().len());
    let own = card.action.approval.filter(|_| place != Place::Own);
    html! {
        "This page cannot show everything that you must see to approve this action: "
        (words::count(details.warnings.len() as u64, "warning")) " and " (words::count(recipients as u64, "recipient"))
        ". It cannot be approved here. "
        @if let Some(id) = own { a href={ (paths::APPROVALS) "/" (id) } { "Its own page" } " has more room. " }
        code { "gavel approvals list" } " and " code { "GET /api/agent/approvals/pending" } " show everything."
    }
}

fn body(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let fits = room::must_see_fits(&action.details, place.room());
    let given: Value = serde_json::from_str(action.arguments.get()).unwrap_or_default();
    let fit = room::fit(&given, place.room());
    let recipients = action.details.recipients.as_ref();
    let waits = matches!(
        action.status,
        ActionStatus::AwaitingConfirmation | ActionStatus::InDoubt
    );
    let may_read = card.visitor.may_read(&action.user) || card.visitor.is_approver() && waits;
    let session = action.session.filter(|_| place == Place::Own && may_read);
    html! {
        @if !action.details.reason.is_empty() {
            p.why { b { "Why it requires approval: " } (words::beginning(&action.details.reason, place.room().must_see())) }
        }
        @if let Some(recipients) = recipients {
            p.reach {
                b { "Goes to " (words::count(recipients.all().len() as u64, "recipient")) (domains(recipients)) }
                // The arguments show each recipient, unless they are cut.
                @if !fits { ": " (first(recipients, card.tool.as_deref())) }
                @else if !fit.cuts.is_empty() { ": " (people(recipients, card.tool.as_deref())) }
            }
        }
        (fit.note())
        (arguments::arguments(card.tool.as_deref(), action.id, &fit.arguments, fit.cuts.is_empty(), Clock { zone: card.visitor.zone, now_us: card.now_us }))
        details.exactly {
            summary { "Exactly what is sent" }
            (arguments::raw(&fit.arguments))
            @if let Some(by) = &action.resolved_by { p { "The decision is recorded as one of " (words::code(by)) "." } }
            @if let Some(tool) = card.tool.as_ref().filter(|tool| !tool.description.is_empty()) {
                p { "The tool's own description: " q { (words::beginning(&tool.description, room::TEXT)) } }
            }
        }
        @if let Some(thread) = action.thread.filter(|_| card.visitor.may_read(&action.user)) {
            p { a href={ "/console/threads/" (thread) } { "Read the thread it comes from" } }
        }
        @if let Some(session) = session {
            p { a href={ (paths::SESSIONS) "/" (session) } { "See the planning session it comes from" } }
        }
    }
}

/// In how many organizations, as far as their domains say it, if there are several.
fn domains(recipients: &Recipients) -> Markup {
    let all = recipients.all();
    let domains: BTreeSet<_> = all.iter().filter_map(|one| Some(one.rsplit_once('@')?.1)).collect();
    html! {
        @if domains.len() > 1 {
            " at " (words::count(domains.len() as u64, "domain")) ": " (addresses(domains, MOST_DOMAINS))
        }
    }
}

/// The recipients by argument, in the order of the tool's settings: that of a mail program, and not the alphabet's.
fn in_order<'a>(recipients: &'a Recipients, tool: Option<&Tool>) -> Vec<(&'a str, &'a BTreeSet<String>)> {
    let paths = tool.map(|tool| tool.settings.recipients.as_slice()).unwrap_or_default();
    let mut arguments: Vec<_> = recipients.by_argument().collect();
    arguments.sort_by_key(|(argument, _)| paths.iter().position(|path| path.to_string() == **argument));
    arguments
}

/// Addresses, each after the name of its argument.
pub(crate) fn people(recipients: &Recipients, tool: Option<&Tool>) -> Markup {
    html! {
        @for (n, (argument, addresses)) in in_order(recipients, tool).into_iter().enumerate() {
            @if n > 0 { "; " }
            (words::text(&words::name(&argument.replace("[]", "")))) ": "
            (self::addresses(addresses.iter().map(String::as_str), usize::MAX))
        }
    }
}

/// The first of these addresses, and how many more there are.
fn addresses<'a>(all: impl IntoIterator<Item = &'a str>, most: usize) -> Markup {
    let all: Vec<_> = all.into_iter().collect();
    html! {
        @for (n, one) in all.iter().take(most).enumerate() { @if n > 0 { ", " } bdi.address { (words::text(one)) } }
        @if all.len() > most { " and " (all.len() - most) " more" }
    }
}

/// The state of an action, as text.
pub(crate) fn state(card: &Card<'_>) -> Markup {
    let action = card.action;
    let person = |name: &str| words::person(name, &card.visitor.name);
    let by = html! {
        @if let Some(by) = &action.resolved_by { " by " b { (person(by)) } }
        @if let Some(at) = action.resolved_at { " " (words::relative(at, card.now_us)) }
    };
    let always = action.resolution == Some(Resolution::ApproveAndAlwaysAllowRecipient);
    let approval = html! {
        @if action.resolution.is_some() { "Approved" (by) @if always { ", and always allowed for these recipients" } }
        @else if action.grant.is_some() { "Always allowed" }
        @else { "Needed no approval" }
    };
    html! {
        @match action.status {
            ActionStatus::Planned => "Not decided yet.",
            ActionStatus::AwaitingConfirmation => "It expired and was not executed.",
            ActionStatus::Approved => { (approval) "; not started yet." },
            ActionStatus::Executing => { (approval) ", and still running." },
            ActionStatus::Completed => {
                @if let Some(by) = &action.settled_by {
                    (approval) ", and started; its result was lost, and " b { (person(by)) } " reported that it happened."
                }
                @else if action.details.recipients.is_some() { "Sent. " (approval) "." }
                @else { "Done. " (approval) "." }
            },
            ActionStatus::Failed => {
                (approval) ", and it failed"
                @if let Some(code) = &action.error_code { " (" (words::code(code)) ")" }
                @if action.error_message.as_deref() == Some(DID_NOT_HAPPEN) { ": " b { (person(action.settled_by.as_deref().unwrap_or("a person"))) } " reported that it did not happen." }
                @else {
                    // After an error of the tool itself, the effect is unknown.
                    @if is_tools_own(action) {
                        ". It may have been executed in part; check with its server."
                    } @else { ": it had no effect." }
                    @if let Some(words) = &action.error_message { " The error: " q { (words::beginning(&in_words(words), room::TEXT)) } }
                }
            },
            ActionStatus::InDoubt => {
                (approval) ", and started; its result was lost, so its outcome is unknown. It is not sent again."
            },
            ActionStatus::Rejected => {
                "Rejected" (by) "; not executed." @if let Some(reason) = &action.reason { " Reason: " q { (words::text(reason)) } }
            },
            ActionStatus::Expired if action.resolution.is_some() => { (approval) ", but it could not start in time. It was not executed." },
            ActionStatus::Expired => "The approval expired, or the run ended first. It was not executed.",
        }
    }
}

/// Where a person sees whether the action happened.
pub(crate) fn look(card: &Card<'_>) -> Markup {
    let details = &card.action.details;
    html! {
        "Look where its effect would be visible"
        @match (&details.account, &details.recipients) {
            (Some(account), Some(_)) => { ", such as among what " bdi { (words::text(account)) } " has sent, or ask a recipient" },
            (None, Some(_)) => ", such as in a folder for sent messages, or ask a recipient",
            (Some(account), None) => { " for " bdi { (words::text(account)) } },
            (None, None) => {},
        }
        "."
    }
}

/// The first recipients, and how many more there are.
pub(crate) fn first(recipients: &Recipients, tool: Option<&Tool>) -> Markup {
    of_first(recipients, tool, 3)
}

fn of_first(recipients: &Recipients, tool: Option<&Tool>, most: usize) -> Markup {
    let mut all: Vec<&str> = Vec::new();
    for one in in_order(recipients, tool).into_iter().flat_map(|(_, of)| of) {
        if !all.contains(&one.as_str()) {
            all.push(one);
        }
    }
    addresses(all, most)
}

/// The message about the action that the visitor just decided, from the stored action.
pub(crate) fn flash(card: &Card<'_>, late: bool) -> Markup {
    let action = card.action;
    let others = action.resolved_by.as_deref().is_some_and(|by| by != card.visitor.name);
    let good = matches!(
        action.status,
        ActionStatus::Completed | ActionStatus::Rejected | ActionStatus::Approved | ActionStatus::Executing
    );
    let bad = late || !good;
    let link = action.approval.map(|id| format!("{}/{id}", paths::APPROVALS));
    html! {
        div.flash.bad[bad] role="status" {
            p {
                b { (title(card)) }
                @if let Some(recipients) = &action.details.recipients { " to " (first(recipients, card.tool.as_deref())) }
                ": "
                @if late && others { "your decision came too late. " }
                @else if late { "this was decided before. " }
                @if action.status == ActionStatus::AwaitingConfirmation { "it still waits for approval." }
                @else { (state(card)) }
                @if let Some(link) = link { " " a href=(link) { "See it" } }
            }
        }
    }
}

fn answers(card: &Card<'_>, place: Place, approval: &str) -> Markup {
    let action = card.action;
    let path = format!("{}/{approval}", paths::APPROVALS);
    let back = place.back();
    let answer = |decision: Resolution, content: &Markup| {
        form(
            card.visitor,
            &path,
            &[("decision", decision.as_str()), ("back", &back)],
            content,
        )
    };
    let recipients = action.details.recipients.as_ref();
    let grantable = recipients.filter(|_| action.details.is_grantable());
    let what = format!("a-{}", action.id);
    let fits = room::must_see_fits(&action.details, place.room());
    let warnings = warning_count(card);
    html! {
        div.answers {
            @if fits {
                (answer(Resolution::ApproveOnce, &html! {
                    // Green would say that nothing speaks against it.
                    button.yes[warnings == 0] type="submit" aria-describedby=(what) { "Approve once" }
                    @if warnings > 0 { " " span.beside { (words::count(warnings, "warning")) " above" } }
                }))
            }
            (unfold("Reject…", &answer(Resolution::Reject, &html! {
                label for={ "r-" (action.id) } { "Reason (optional). The agent receives it." }
                textarea #{ "r-" (action.id) } name="reason" rows="3" maxlength="1000" {}
                button.no type="submit" aria-describedby=(what) { "Reject" }
            })))
            @if let Some(recipients) = grantable.filter(|_| fits) {
                (unfold("Always for these recipients…", &answer(Resolution::ApproveAndAlwaysAllowRecipient, &html! {
                    p {
                        "Approves this action. From now on, " (words::code(&action.tool)) " for "
                        b { bdi { (words::text(&action.user)) } } " needs no approval, whatever its content, if it goes to exactly "
                        (people(recipients, card.tool.as_deref())) ". One recipient more or less, or a recipient in another field, requires approval again. You can revoke this under Always allowed."
                    }
                    button.yes[warnings == 0] type="submit" aria-describedby=(what) { "Approve and always allow" }
                })))
            }
        }
    }
}

/// The forms that settle an in-doubt action: two steps, because gavel does not ask for confirmation.
fn settle(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let path = format!("/console/actions/{}", action.id);
    let back = place.back();
    let answer = |label: &str, happened: &str, content: &Markup| {
        unfold(
            label,
            &form(card.visitor, &path, &[("happened", happened), ("back", &back)], content),
        )
    };
    html! {
        @if action.thread.is_none() && action.session.is_none() {
            p {
                "If its run " (words::code(&action.root.to_string())) " is paused, report what happened when you resume it: "
                code { "gavel runs resume" } ", or " code { "POST /api/runs/ID/resume" } ". If the run has ended, report it here."
            }
        }
        p { (look(card)) " If it happened, it will count as done; if not, as failed." }
        div.answers {
            (answer("It happened…", "yes", &html! {
                p { "You have checked that the action had its effect." }
                button type="submit" { "Yes, it happened" }
            }))
            (answer("It did not happen…", "no", &html! {
                p { "You have checked that nothing was done." }
                button type="submit" { "No, it did not happen" }
            }))
        }
    }
}

/// Where a card is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a page of its own.
    Own,
    /// On the page of this planning session.
    Session(PlanningSessionId),
}

impl Place {
    /// How much of a call there is room for.
    pub(crate) fn room(self) -> Room {
        match self {
            Self::Session(_) => IN_LIST,
            Self::Own => ALONE,
        }
    }

    /// What a form says about where to return.
    pub(crate) fn back(self) -> String {
        match self {
            Self::Own => "list".to_owned(),
            Self::Session(session) => session.to_string(),
        }
    }
}

/// Most characters of the first words of a call.
const WORDS: usize = 140;

/// Renders a line that leads to the page of the action, with its state if the list does not say it.
pub(crate) fn row(card: &Card<'_>, with_state: bool) -> Markup {
    let action = card.action;
    let warnings = warning_count(card);
    html! {
        li.row {
            div.what {
                a href=(link(action)) { (title(card)) }
                " " span.tool { (words::code(&action.tool)) }
                @if warnings > 0 { " " span.badge { (words::count(warnings, "warning")) } }
            }
            div.when {
                @if action.status == ActionStatus::InDoubt { "sent " (words::relative(action.started_at.unwrap_or(action.created_at), card.now_us)) }
                @else if let Some(at) = action.resolved_at { "answered " (words::relative(at, card.now_us)) }
                @else if let Some(at) = action.expires_at.filter(|_| action.waits(card.now_us)) { "expires " (words::relative(at, card.now_us)) }
            }
            div.whom {
                "for " bdi { (words::text(&action.user)) }
                @if let Some(recipients) = &action.details.recipients { " · to " (of_first(recipients, card.tool.as_deref(), 1)) }
                @let said = beginning(card);
                @if !said.is_empty() { " · " span.words dir="auto" { (words::text(&said)) } }
            }
            @if with_state {
                div.state { @if action.waits(card.now_us) { "Waits for approval." } @else { (state(card)) } }
            }
        }
    }
}

/// The first words of the call: its texts in the order in which a person reads them, without the recipients.
fn beginning(card: &Card<'_>) -> String {
    let given: Value = serde_json::from_str(card.action.arguments.get()).unwrap_or_default();
    let Value::Object(fields) = &given else {
        return String::new();
    };
    let recipients = card.action.details.recipients.as_ref();
    let names_people = |name: &str| {
        recipients.is_some_and(|recipients| {
            let mut arguments = recipients.by_argument();
            arguments.any(|(argument, _)| argument.split(['.', '[']).next() == Some(name))
        })
    };
    let mut texts: Vec<_> = fields
        .iter()
        .filter(|(name, _)| !names_people(name))
        .filter_map(|(name, value)| Some((name, value.as_str()?)))
        .collect();
    texts.sort_by_key(|(name, text)| {
        let is_long = text.contains('\n') || text.chars().nth(WORDS).is_some();
        let order = card.tool.as_ref().map(|tool| tool.reading_order(name, is_long));
        order.unwrap_or((usize::from(is_long), 0))
    });
    let mut said = String::new();
    for (_, text) in texts {
        for (n, word) in text.split_whitespace().enumerate() {
            if !said.is_empty() {
                said.push_str(if n == 0 { " · " } else { " " });
            }
            said.extend(word.chars().take(WORDS));
            if said.chars().nth(WORDS).is_some() {
                return said.chars().take(WORDS).chain(['…']).collect();
            }
        }
    }
    said
}
