//! The forms by which an approver resolves an approval or settles an in-doubt action.

use crate::http::console::paths;
use maud::{Markup, html};

use super::super::room;
use super::super::{token, words};
use super::{Card, Place, look, people, warning_count};
use crate::domain::action::Resolution;

pub(super) fn answers(card: &Card<'_>, place: Place, approval: &str) -> Markup {
    let action = card.action;
    let path = format!("{}/{approval}", paths::APPROVALS);
    let back = place.back();
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
    let warnings = warning_count(card);
    html! {
        div.answers {
            @if fits {
                (form(Resolution::ApproveOnce, html! {
                    // Green would say that nothing speaks against it.
                    button.yes[warnings == 0] type="submit" aria-describedby=(what) { "Approve once" }
                    @if warnings > 0 { " " span.beside { (words::count(warnings, "warning")) " above" } }
                }))
            }
            details {
                summary.button { "Reject…" }
                (form(Resolution::Reject, html! {
                    label for={ "r-" (action.id) } { "Reason (optional). The agent receives it." }
                    textarea #{ "r-" (action.id) } name="reason" rows="3" maxlength="1000" {}
                    button.no type="submit" aria-describedby=(what) { "Reject" }
                }))
            }
            @if let Some(recipients) = grantable.filter(|_| fits) {
                details {
                    summary.button { "Always for these recipients…" }
                    (form(Resolution::ApproveAndAlwaysAllowRecipient, html! {
                        p {
                            "Approves this action. From now on, " (words::code(&action.tool)) " for "
                            b { bdi { (words::text(&action.user)) } } " needs no approval, whatever its content, if it goes to exactly "
                            (people(recipients, card.tool.as_deref())) ". One recipient more or less, or a recipient in another field, requires approval again. You can revoke this under Always allowed."
                        }
                        button.yes[warnings == 0] type="submit" aria-describedby=(what) { "Approve and always allow" }
                    }))
                }
            }
        }
    }
}

/// The forms that settle an in-doubt action: two steps, because gavel does not ask for confirmation.
pub(super) fn settle(card: &Card<'_>, place: Place) -> Markup {
    let action = card.action;
    let path = format!("/console/actions/{}", action.id);
    let form = |happened: &str, inner: Markup| {
        html! {
            form method="post" action=(path) {
                (token(card.visitor))
                input type="hidden" name="happened" value=(happened);
                input type="hidden" name="back" value=(place.back());
                (inner)
            }
        }
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
            details {
                summary.button { "It happened…" }
                (form("yes", html! {
                    p { "You have checked that the action had its effect." }
                    button type="submit" { "Yes, it happened" }
                }))
            }
            details {
                summary.button { "It did not happen…" }
                (form("no", html! {
                    p { "You have checked that nothing was done." }
                    button type="submit" { "No, it did not happen" }
                }))
            }
        }
    }
}
