//! Console pages of approval requests and in-doubt actions: the lists, and one action.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use crate::domain::action::{Action, ActionStatus, Resolution};
use crate::domain::hypertext;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use crate::http::console::session::{Form, Onlooker, Visitor};
use crate::http::console::view::action::{Card, Place, card, row};
use crate::http::console::view::{self, address, head, next, words};
use crate::http::console::{Parameters, STYLE_HASH, Turned, foreign, framed, nothing, page, paths, see};
use crate::http::error::Error;
use crate::http::request::{Id, Open, Request, Take};
use crate::http::{Edge, body, headers};
use crate::surfaces::StoreFailure;
use crate::surfaces::approvals::{ActionQuery, Answer, ApprovalError, Which};
use crate::surfaces::decisions::ListQuery;

/// Approval requests per page.
const ROWS: u32 = 50;
/// How long a decision waits for the run that it resumes, so that the next page can show the outcome.
const PATIENCE: Duration = Duration::from_secs(4);

/// A tool as a card's heading shows it, or as its identifier, or the beginning of either.
fn identifier(tool: &str) -> String {
    match tool.contains(' ') {
        true => tool.to_lowercase().replace(' ', "_"),
        false => tool.to_owned(),
    }
}

/// The filter of a list, or of its news frame.
fn filter(given: &Parameters) -> Filter {
    Filter {
        user: given.get("user"),
        tool: given.get("tool"),
    }
}

/// The query for a page of actions.
fn actions(which: Which, filter: &Filter, page_token: Option<String>) -> ActionQuery {
    ActionQuery {
        which,
        tool: filter.tool.as_deref().map(identifier),
        of_user: filter.user.clone(),
        list: ListQuery {
            page_size: ROWS,
            page_token,
            ..ListQuery::default()
        },
    }
}

/// A visitor, or the browser that refreshes their page: that does not keep them logged in.
pub(crate) struct Reader(Visitor);

impl Take<Turned> for Reader {
    async fn take(request: &mut Request) -> Result<Self, Turned> {
        match Parameters::take(request).await?.get("auto") {
            Some(_) => Onlooker::take(request).await.map(|Onlooker(visitor)| Self(visitor)),
            None => Visitor::take(request).await.map(Self),
        }
    }
}

pub(crate) async fn list(edge: Open, Reader(visitor): Reader, given: Parameters) -> Result<HttpResponse, Turned> {
    let filter = filter(&given);
    let approvals = &edge.approvals;
    let list = async |status, token| {
        let query = actions(Which::In(status), &filter, token);
        approvals.list(&visitor.caller, visitor.user.clone(), query).await
    };
    let token = given.get("page_token");
    let pending = list(ActionStatus::AwaitingConfirmation, token.clone()).await?;
    let in_doubt = match token {
        None => Some(list(ActionStatus::InDoubt, None).await?),
        Some(_) => None,
    };
    let flash = flash(&edge, &visitor, &given).await?;
    let now = edge.runs.now_us();
    let rows = |actions: &[Action]| {
        let rows = actions
            .iter()
            .map(|action| row(&of(&edge, &visitor, action, now), false));
        rows.collect::<Vec<_>>()
    };
    let waits: Vec<_> = pending.items.into_iter().filter(|action| action.waits(now)).collect();
    let list = Listed {
        visitor: &visitor,
        filter: &filter,
        flash,
        rows: rows(&waits),
        page: token.as_deref(),
        is_paused: given.get("still").is_some(),
        next: pending.next_page_token.as_deref(),
        in_doubt: in_doubt.as_ref().map(|page| rows(&page.items)).unwrap_or_default(),
        more_in_doubt: in_doubt.as_ref().is_some_and(|page| page.next_page_token.is_some()),
    };
    let more = if pending.next_page_token.is_some() { "+" } else { "" };
    let title = match waits.len() {
        0 => "Approvals".to_owned(),
        count => format!("({count}{more}) Approvals"),
    };
    let mut response = page(StatusCode::OK, Some(&visitor), &title, &list_page(&list));
    if let Some(refresh) = list.refresh().and_then(|value| HeaderValue::from_str(&value).ok()) {
        response.headers_mut().insert(header::REFRESH, refresh);
    }
    Ok(response)
}

/// Requests that were answered or expired, the latest request first.
pub(crate) async fn answered(edge: Open, visitor: Visitor, given: Parameters) -> Result<HttpResponse, Turned> {
    let filter = filter(&given);
    let mut query = actions(Which::Answered, &filter, given.get("page_token"));
    query.list.order_by = Some("created_at desc".to_owned());
    let found = edge.approvals.list(&visitor.caller, visitor.user.clone(), query);
    let found = found.await?;
    let now = edge.runs.now_us();
    let rows: Vec<_> = found
        .items
        .iter()
        .map(|action| row(&of(&edge, &visitor, action, now), true))
        .collect();
    let body = answered_page(&visitor, &filter, &rows, found.next_page_token.as_deref());
    Ok(page(StatusCode::OK, Some(&visitor), "Answered requests", &body))
}

pub(crate) async fn one(
    edge: Open,
    visitor: Visitor,
    Id(id): Id<ApprovalId>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let action = edge
        .approvals
        .question(&visitor.caller, visitor.user.clone(), id)
        .await?;
    show(&edge, &visitor, &action, &given).await
}

/// An action, which may have needed no approval.
pub(crate) async fn action(
    edge: Open,
    visitor: Visitor,
    Id(id): Id<ActionId>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let action = edge.approvals.action(&visitor.caller, visitor.user.clone(), id).await?;
    show(&edge, &visitor, &action, &given).await
}

async fn show(edge: &Edge, visitor: &Visitor, action: &Action, given: &Parameters) -> Result<HttpResponse, Turned> {
    let flash = flash(edge, visitor, given).await?;
    let card = card(&of(edge, visitor, action, edge.runs.now_us()), Place::Own);
    let (title, body) = (view::words::name(&action.tool), request_page(flash, &card));
    Ok(page(StatusCode::OK, Some(visitor), &title, &body))
}

/// HTML among the arguments of an action, as its recipient sees it.
pub(crate) async fn html(
    edge: Open,
    onlooker: Result<Onlooker, Turned>,
    id: Result<Id<ActionId>, Turned>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    // On a page of its own its links would open.
    let place = headers::only(edge.headers(), &HeaderName::from_static("sec-fetch-dest"));
    if place.is_some_and(|place| place != "iframe") {
        return Err(Error::NotFound.into());
    }
    let Onlooker(visitor) = match onlooker {
        Err(Turned::LogIn(_) | Turned::Again(_)) => {
            let page = in_place("You are logged out. Reload the page.");
            return Ok(framed(page));
        }
        onlooker => onlooker?,
    };
    let Id(id) = id?;
    let approvals = &edge.approvals;
    let action = approvals.action(&visitor.caller, visitor.user.clone(), id);
    let action = action.await?;
    let arguments: Value = serde_json::from_str(action.arguments.get()).unwrap_or_default();
    let html = given
        .get("at")
        .and_then(|at| arguments.pointer(&at)?.as_str().and_then(hypertext::framed));
    Ok(match html {
        Some(document) => foreign(document),
        None => framed(in_place(
            "This HTML is too long to be shown here. Read the HTML itself, below.",
        )),
    })
}

/// The data of a card.
pub(super) fn of<'a>(edge: &Edge, visitor: &'a Visitor, action: &'a Action, now_us: i64) -> Card<'a> {
    Card {
        action,
        tool: edge.approvals.tool(action),
        visitor,
        now_us,
    }
}

/// The message about the action that the visitor just decided, from the stored action; `about` and `settled` only
/// identify it.
pub(super) async fn flash(edge: &Edge, visitor: &Visitor, given: &Parameters) -> Result<Option<maud::Markup>, Turned> {
    let approvals = &edge.approvals;
    let about = given.get("about");
    let found = match (about, given.get("settled")) {
        (Some(about), _) => match ApprovalId::parse(&about) {
            Some(id) => approvals.question(&visitor.caller, visitor.user.clone(), id).await,
            None => return Ok(None),
        },
        (None, Some(settled)) => match ActionId::parse(&settled) {
            Some(id) => approvals.action(&visitor.caller, visitor.user.clone(), id).await,
            None => return Ok(None),
        },
        (None, None) => return Ok(None),
    };
    match found {
        Ok(action) => {
            let late = given.get("late").is_some();
            Ok(Some(view::action::flash(
                &of(edge, visitor, &action, edge.runs.now_us()),
                late,
            )))
        }
        Err(ApprovalError::Store(StoreFailure::NotFound)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn resolve(
    edge: Open,
    visitor: Visitor,
    form: Form,
    Id(approval): Id<ApprovalId>,
) -> Result<HttpResponse, Turned> {
    let resolution = form.get("decision").and_then(Resolution::parse);
    let reason = body::reason(form.text("reason"), "reason")?;
    let answer = Answer {
        approval,
        resolution: resolution.ok_or_else(|| Error::invalid("decision", "does not match a button of the form"))?,
        reason,
        key: None,
    };
    let user = visitor.user.clone();
    let late = match edge.approvals.resolve(&visitor.caller, user, answer).await {
        Ok(run) => {
            rests(&edge, &visitor, run.run).await;
            ""
        }
        // The page shows the earlier decision and its approver.
        Err(ApprovalError::Resolved(..)) => "&late=1",
        Err(error) => return Err(error.into()),
    };
    Ok(see(&format!(
        "{}?about={approval}{late}",
        list_or_session(&edge, &visitor, &form).await
    )))
}

/// Waits briefly for the resumed run. The decision is valid even if the run cannot be read now.
async fn rests(edge: &Edge, visitor: &Visitor, run: RunId) {
    let rests = tokio::time::timeout(PATIENCE, edge.runs.rests(&visitor.caller, run));
    if let Ok(Err(error)) = rests.await {
        tracing::warn!(run_id = %run, %error, "an approval was resolved, and the state of its run cannot be read");
    }
}

pub(crate) async fn settle(
    edge: Open,
    visitor: Visitor,
    form: Form,
    Id(id): Id<ActionId>,
) -> Result<HttpResponse, Turned> {
    let happened = match form.get("happened") {
        Some("yes") => true,
        Some("no") => false,
        _ => return Err(Error::invalid("happened", "does not match a button of the form").into()),
    };
    let user = visitor.user.clone();
    let late = match edge.approvals.settle(&visitor.caller, user, id, happened, None).await {
        Ok(_) => "",
        Err(ApprovalError::NotInDoubt(_)) => "&late=1",
        Err(error) => return Err(error.into()),
    };
    Ok(see(&format!(
        "{}?settled={id}{late}",
        list_or_session(&edge, &visitor, &form).await
    )))
}

/// The page that had the form: the list, or a planning session if the visitor may still read it.
async fn list_or_session(edge: &Edge, visitor: &Visitor, form: &Form) -> String {
    if let Some(session) = form.get("back").and_then(PlanningSessionId::parse) {
        let reads = visitor.reads.as_ref();
        if edge.planning.session(&visitor.caller, reads, session).await.is_ok() {
            return format!("{}/{session}", paths::SESSIONS);
        }
    }
    paths::APPROVALS.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_its_heading_and_by_its_identifier() {
        assert_eq!(identifier("Gmail send"), "gmail_send");
        assert_eq!(identifier("sendMail"), "sendMail");
    }
}

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
pub(crate) fn list_page(listed: &Listed<'_>) -> Markup {
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
        (filter_form(paths::APPROVALS, listed.filter, listed.visitor))
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
fn filter_form(list: &str, filter: &Filter, visitor: &Visitor) -> Markup {
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
pub(crate) fn answered_page(visitor: &Visitor, filter: &Filter, rows: &[Markup], more: Option<&str>) -> Markup {
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
        (filter_form(path, filter, visitor))
        @if rows.is_empty() { (nothing(if filter.is_on() { "No answered request matches the filter." } else { "No request was answered yet." })) }
        ul.rows { @for row in rows { (row) } }
        @if more.is_some() { (next(path, &pairs)) }
    }
}

/// Renders the page of one approval request.
pub(crate) fn request_page(flash: Option<Markup>, card: &Markup) -> Markup {
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
