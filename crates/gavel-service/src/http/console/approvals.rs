//! Console pages of approval requests and in-doubt actions: the lists, and one action.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use maud::{Markup, html};
use serde_json::Value;

use crate::api::approvals::ResolveBody;
use crate::api::filter::{beginning, quoted};
use crate::domain::action::{Action, ActionStatus, Resolution};
use crate::domain::hypertext;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use crate::http::console::session::{Form, Onlooker, Visitor};
use crate::http::console::view::action::{Card, Place, card, row};
use crate::http::console::view::{self, address, field, next, words};
use crate::http::console::{Page, Parameters, Turned, foreign, framed, nothing, page, paths, see};
use crate::http::error::{Code, Error};
use crate::http::request::{Id, Open, Request, Take};
use crate::http::{Edge, body, headers};
use crate::surfaces::approvals::Which;
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::problem::Problem;

/// Approval requests per page.
const ROWS: u32 = 50;
/// How long a decision waits for the run that it resumes, so that the next page can show the outcome.
const PATIENCE: Duration = Duration::from_secs(4);
/// Seconds after which the list refreshes itself.
const REFRESH: u32 = 30;

/// A tool as a card's heading shows it, or as its identifier, or the beginning of either.
fn identifier(tool: &str) -> String {
    match tool.contains(' ') {
        true => tool.to_lowercase().replace(' ', "_"),
        false => tool.to_owned(),
    }
}

/// The filter of a list.
struct Filter {
    user: Option<String>,
    tool: Option<String>,
}

impl Filter {
    fn new(given: &Parameters) -> Self {
        Self {
            user: given.get("user"),
            tool: given.get("tool"),
        }
    }

    fn is_on(&self) -> bool {
        self.user.is_some() || self.tool.is_some()
    }

    fn form(&self, list: &str, visitor: &Visitor) -> Markup {
        let fields = html! {
            @if visitor.is_approver() { (field("user", "For whom", self.user.as_deref())) }
            (field("tool", "Tool", self.tool.as_deref()))
        };
        view::filter(list, self.is_on(), &fields)
    }

    /// The address of a list with this filter, and with these parameters.
    fn address(&self, list: &str, more: &[(&str, Option<&str>)]) -> String {
        let own = [("user", self.user.as_deref()), ("tool", self.tool.as_deref())];
        address(list, &[&own, more].concat())
    }
}

/// The query for a page of actions: of this user, and of tools whose names begin so.
fn query(filter: &Filter, page_token: Option<String>) -> ListQuery {
    let user = filter.user.as_deref().map(|user| format!("user_id = {}", quoted(user)));
    let tool = filter.tool.as_deref().map(identifier);
    let tool = tool.map(|tool| format!("tool = {}", beginning(&tool)));
    let conditions: Vec<_> = user.into_iter().chain(tool).collect();
    ListQuery {
        page_size: ROWS,
        page_token,
        filter: Some(conditions.join(" AND ")),
        ..ListQuery::default()
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

pub(crate) async fn list(edge: Open, Reader(visitor): Reader, given: Parameters) -> Page {
    let filter = Filter::new(&given);
    let approvals = &edge.approvals;
    let list = async |status, token| {
        let query = query(&filter, token);
        approvals
            .list(&visitor.caller, visitor.user.clone(), Which::In(status), query)
            .await
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
        html! { ul.rows { @for action in actions { (row(&of(&edge, &visitor, action, now), false)) } } }
    };
    let waits: Vec<_> = pending.items.into_iter().filter(|action| action.waits(now)).collect();
    let more = if pending.next_page_token.is_some() { "+" } else { "" };
    let is_paused = given.get("still").is_some();
    let still = |is_paused: bool| ("still", is_paused.then_some("1"));
    let this_page = ("page_token", token.as_deref());
    let next_page = ("page_token", pending.next_page_token.as_deref());
    let body = html! {
        @if let Some(flash) = &flash { (flash) }
        h1 { "Approvals" }
        p.lead {
            @if visitor.is_approver() { "Actions of agents, for any user, that wait for approval. " }
            @else { "Actions of agents, for you, that wait for approval. " }
            "An approved action is executed once, exactly as shown. "
            a href=(paths::ANSWERED) { "Answered requests" }
        }
        (filter.form(paths::APPROVALS, &visitor))
        p.hint {
            @let other = filter.address(paths::APPROVALS, &[this_page, still(!is_paused)]);
            @if is_paused { "This list does not refresh itself. " a href=(other) { "Refresh it" } }
            @else { "Refreshes itself every " (REFRESH) " seconds. " a href=(other) { "Pause" } }
        }
        section aria-labelledby="waiting" {
            h2 #waiting {
                "Waiting for approval"
                @if !waits.is_empty() { " " span.count { (waits.len()) (more) } }
            }
            @if waits.is_empty() {
                (nothing(if filter.is_on() { "No action that matches the filter waits for approval." } else { "No action waits for approval." }))
            }
            (rows(&waits))
            @if next_page.1.is_some() { (next(&filter.address(paths::APPROVALS, &[next_page, still(is_paused)]))) }
        }
        @if let Some(in_doubt) = in_doubt.filter(|page| !page.items.is_empty()) {
            @let has_more = in_doubt.next_page_token.is_some();
            section aria-labelledby="in-doubt" {
                h2 #in-doubt { "Outcome unknown " span.count { (in_doubt.items.len()) @if has_more { "+" } } }
                p { "These actions were sent, and gavel received no result. It does not repeat them: check what happened, and settle them." }
                (rows(&in_doubt.items))
                @if has_more { p { "There are more; they appear when these are settled." } }
            }
        }
    };
    let title = match waits.len() {
        0 => "Approvals".to_owned(),
        count => format!("({count}{more}) Approvals"),
    };
    let mut response = page(StatusCode::OK, Some(&visitor), &title, &body);
    if !is_paused {
        // The request that it causes does not count as use of the session.
        let path = filter.address(paths::APPROVALS, &[this_page, ("auto", Some("1"))]);
        if let Ok(refresh) = HeaderValue::try_from(format!("{REFRESH}; url={path}")) {
            response.headers_mut().insert(header::REFRESH, refresh);
        }
    }
    Ok(response)
}

/// Requests that were answered or expired, the latest request first.
pub(crate) async fn answered(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    let filter = Filter::new(&given);
    let query = ListQuery {
        order_by: Some("created_at desc".to_owned()),
        ..query(&filter, given.get("page_token"))
    };
    let user = visitor.user.clone();
    let found = edge
        .approvals
        .list(&visitor.caller, user, Which::Answered, query)
        .await?;
    let now = edge.runs.now_us();
    let more = found.next_page_token.as_deref();
    let body = html! {
        (back())
        h1 { "Answered requests" }
        p.lead { "Requests that were approved or rejected, or that expired, the latest request first." }
        (filter.form(paths::ANSWERED, &visitor))
        @if found.items.is_empty() { (nothing(if filter.is_on() { "No answered request matches the filter." } else { "No request was answered yet." })) }
        ul.rows { @for action in &found.items { (row(&of(&edge, &visitor, action, now), true)) } }
        @if more.is_some() { (next(&filter.address(paths::ANSWERED, &[("page_token", more)]))) }
    };
    Ok(visitor.page("Answered requests", &body))
}

fn back() -> Markup {
    html! { p.back { a href=(paths::APPROVALS) { (words::text("← All approvals")) } } }
}

pub(crate) async fn one(edge: Open, visitor: Visitor, Id(id): Id<ApprovalId>, given: Parameters) -> Page {
    let action = edge
        .approvals
        .question(&visitor.caller, visitor.user.clone(), id)
        .await?;
    show(&edge, &visitor, &action, &given).await
}

/// An action, which may have needed no approval.
pub(crate) async fn action(edge: Open, visitor: Visitor, Id(id): Id<ActionId>, given: Parameters) -> Page {
    let action = edge.approvals.action(&visitor.caller, visitor.user.clone(), id).await?;
    show(&edge, &visitor, &action, &given).await
}

async fn show(edge: &Edge, visitor: &Visitor, action: &Action, given: &Parameters) -> Page {
    let flash = flash(edge, visitor, given).await?;
    let card = card(&of(edge, visitor, action, edge.runs.now_us()), Place::Own);
    let body = html! { @if let Some(flash) = flash { (flash) } (back()) (card) };
    let title = words::name(&action.tool);
    Ok(visitor.page(&title, &body))
}

/// HTML among the arguments of an action, as its recipient sees it.
pub(crate) async fn html(
    edge: Open,
    onlooker: Result<Onlooker, Turned>,
    id: Result<Id<ActionId>, Turned>,
    given: Parameters,
) -> Page {
    // On a page of its own its links would open.
    let place = headers::only(edge.headers(), &HeaderName::from_static("sec-fetch-dest"));
    if place.is_some_and(|place| place != "iframe") {
        return Err(Code::NotFound.into());
    }
    let Onlooker(visitor) = match onlooker {
        Err(Turned::LogIn(_) | Turned::Again(_)) => {
            let page = view::in_frame("Message", None, &html! { "You are logged out. Reload the page." });
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
        None => {
            let text = html! { "This HTML is too long to be shown here. Read the HTML itself, below." };
            framed(view::in_frame("Message", None, &text))
        }
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
    let (approvals, caller, user) = (&edge.approvals, &visitor.caller, visitor.user.clone());
    let found = if let Some(id) = given.get("about").and_then(|id| ApprovalId::parse(&id)) {
        approvals.question(caller, user, id).await
    } else if let Some(id) = given.get("settled").and_then(|id| ActionId::parse(&id)) {
        approvals.action(caller, user, id).await
    } else {
        return Ok(None);
    };
    let late = given.get("late").is_some();
    let now_us = edge.runs.now_us();
    let flash = |action| view::action::flash(&of(edge, visitor, &action, now_us), late);
    Ok(Problem::or_none(found)?.map(flash))
}

pub(crate) async fn resolve(edge: Open, visitor: Visitor, form: Form, Id(approval): Id<ApprovalId>) -> Page {
    let resolution = form.get("decision").and_then(Resolution::parse);
    let reason = body::reason(form.text("reason"), "reason")?;
    let answer = ResolveBody {
        approval_id: approval,
        decision: resolution.ok_or_else(|| Error::invalid("decision", "does not match a button of the form"))?,
        reason,
    };
    let user = visitor.user.clone();
    let late = match edge.approvals.resolve(&visitor.caller, user, &answer, None).await {
        Ok(run) => {
            rests(&edge, &visitor, run.run).await;
            ""
        }
        // The page shows the earlier decision and its approver.
        Err(problem) if problem.code == Code::AlreadyResolved => "&late=1",
        Err(error) => return Err(error.into()),
    };
    let page = list_or_session(&edge, &visitor, &form).await;
    Ok(see(&format!("{page}?about={approval}{late}")))
}

/// Waits briefly for the resumed run. The decision is valid even if the run cannot be read now.
async fn rests(edge: &Edge, visitor: &Visitor, run: RunId) {
    let rests = tokio::time::timeout(PATIENCE, edge.runs.rests(&visitor.caller, run));
    if let Ok(Err(error)) = rests.await {
        tracing::warn!(run_id = %run, %error, "an approval was resolved, and the state of its run cannot be read");
    }
}

pub(crate) async fn settle(edge: Open, visitor: Visitor, form: Form, Id(id): Id<ActionId>) -> Page {
    let happened = match form.get("happened") {
        Some("yes") => true,
        Some("no") => false,
        _ => return Err(Error::invalid("happened", "does not match a button of the form").into()),
    };
    let user = visitor.user.clone();
    let late = match edge.approvals.settle(&visitor.caller, user, id, happened, None).await {
        Ok(_) => "",
        Err(problem) if problem.code == Code::NotInDoubt => "&late=1",
        Err(error) => return Err(error.into()),
    };
    let page = list_or_session(&edge, &visitor, &form).await;
    Ok(see(&format!("{page}?settled={id}{late}")))
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
