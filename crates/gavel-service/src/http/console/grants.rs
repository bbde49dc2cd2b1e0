//! Console pages of grants: list and revoke.

use maud::{Markup, html};

use crate::api::approvals::Grant;
use crate::domain::ids::GrantId;
use crate::http::console::session::{Form, Visitor};
use crate::http::console::view::action::{first, people};
use crate::http::console::view::room::{self, IN_LIST};
use crate::http::console::view::{address, form, next, unfold, words};
use crate::http::console::{Page, Parameters, nothing, paths, see};
use crate::http::request::{Id, Open};

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    let approvals = &edge.approvals;
    let found = approvals
        .grants(&visitor.caller, visitor.user.clone(), given.list())
        .await?;
    let grants = &found.items;
    let about = given.get("about").and_then(|about| GrantId::parse(&about));
    let shown = grants.iter().find(|grant| Some(grant.grant_id) == about);
    let more = found.next_page_token.as_deref();
    let body = html! {
        @if let Some(grant) = shown {
            div.flash.bad[grant.revoked_at.is_none()] role="status" {
                p {
                    b { (words::text(&words::name(&grant.tool))) ": " }
                    @if grant.revoked_at.is_some() { "revoked. From now on it requires approval again." } @else { "still in effect." }
                }
            }
        }
        h1 { "Always allowed" }
        p.lead { "Actions that need no approval: each tool, to exactly these recipients." }
        @if grants.is_empty() { (nothing("There are no grants.")) }
        @let (revoked, active): (Vec<_>, Vec<_>) = grants.iter().partition(|grant| grant.revoked_at.is_some());
        @for grant in active { (one(&visitor, grant)) }
        @if !revoked.is_empty() {
            section aria-labelledby="revoked" {
                h2 #revoked { "Revoked" }
                @for grant in revoked { (one(&visitor, grant)) }
            }
        }
        @if more.is_some() { (next(&address(paths::GRANTS, &[("page_token", more)]))) }
    };
    Ok(visitor.page("Always allowed", &body))
}

pub(crate) async fn revoke(edge: Open, visitor: Visitor, _: Form, Id(id): Id<GrantId>) -> Page {
    let approvals = &edge.approvals;
    approvals.revoke(&visitor.caller, visitor.user.clone(), id).await?;
    Ok(see(&format!("{}?about={id}", paths::GRANTS)))
}

fn one(visitor: &Visitor, grant: &Grant) -> Markup {
    let title = format!("g-{}", grant.grant_id);
    html! {
        article.card.gone[grant.revoked_at.is_some()] aria-labelledby=(title) {
            div.heading {
                h2 #(title) { (words::text(&words::name(&grant.tool))) }
                p.tool { (words::code(&grant.tool)) " of " (words::code(&grant.server)) }
            }
            p.reach {
                "Agents that act for " b { bdi { (words::text(&grant.user_id)) } }
                @if grant.revoked_at.is_some() { " could call it without approval" } @else { " may call it without approval" }
                " if it goes to exactly "
                @if room::recipients_fit(&grant.recipients_by_argument, IN_LIST) { (people(&grant.recipients_by_argument, None)) "." }
                @else {
                    (first(&grant.recipients_by_argument, None)) ". " code { "gavel approvals grants" } " and "
                    code { "GET /api/agent/grants" } " show all of them."
                }
            }
            p.hint {
                "Allowed by " (words::person(&grant.created_by, &visitor.name)) " on " (words::at(grant.created_at.0, visitor.zone))
                ". Used " (words::count(grant.uses, "time"))
                @if let Some(last) = grant.last_used_at { ", last " (words::at(last.0, visitor.zone)) } "."
                @if let Some(at) = grant.revoked_at { " Revoked " (words::at(at.0, visitor.zone)) "." }
            }
            @if grant.revoked_at.is_none() {
                div.answers {
                    (unfold("Revoke…", &form(visitor, &format!("{}/{}", paths::GRANTS, grant.grant_id), &[], &html! {
                        p { "From now on every call requires approval again." }
                        button.no type="submit" aria-describedby=(title) { "Revoke" }
                    })))
                }
            }
        }
    }
}
