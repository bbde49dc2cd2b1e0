//! Console pages of approval requests and in-doubt actions.

use crate::http::console::paths;
use crate::http::request::Raw;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::Value;
use tracing::Instrument;

use super::super::State;
use super::super::error::Error;
use super::super::headers;
use super::form::{self, Form};
use super::session::{Visitor, onlooker, visitor};
use super::view::action::{Card, Place, card, row};
use super::view::approvals::{Filter, Listed, listed};
use super::{Turned, foreign, framed, page, respond, see, view};
use crate::domain::action::{Action, ActionStatus, Resolution};
use crate::domain::hypertext;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use crate::surfaces::StoreFailure;
use crate::surfaces::approvals::{ActionQuery, Answer, ApprovalError, MAX_REASON, Which};
use crate::surfaces::decisions::ListQuery;

/// Approval requests per page.
const ROWS: u32 = 50;
/// How long a decision waits for the run that it resumes, so that the next page can show the outcome.
const PATIENCE: Duration = Duration::from_secs(4);

pub(in crate::http) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, waiting(&state, &request).await).await))
}

pub(in crate::http) async fn answered(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(
        respond(&state, &request, answered_before(&state, &request).await).await
    ))
}

pub(in crate::http) async fn one(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    let shown = shown(&state, &request, By::Approval).await;
    exchange.finish(Ok(respond(&state, &request, shown).await))
}

pub(in crate::http) async fn action(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    let shown = shown(&state, &request, By::Action).await;
    exchange.finish(Ok(respond(&state, &request, shown).await))
}

pub(in crate::http) async fn html(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    let answer = match message(&state, &request).await {
        Err(Turned::LogIn(_) | Turned::Again(_)) => Ok(framed(view::approvals::in_place(
            "You are logged out. Reload the page.",
        ))),
        answer => answer,
    };
    exchange.finish(Ok(respond(&state, &request, answer).await))
}

pub(in crate::http) async fn resolve(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = resolved(&state, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(Ok(respond(&state, &request, answer).await))
}

pub(in crate::http) async fn settle(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(
        respond(&state, &request, settled(&state, &request, payload).await).await
    ))
}

/// A query parameter that occurs once and is not empty.
pub(super) fn parameter(request: &HttpRequest, name: &str) -> Option<String> {
    let mut values = url::form_urlencoded::parse(request.query_string().as_bytes())
        .filter(|(known, _)| known == name)
        .map(|(_, value)| value.trim().to_owned());
    let first = values.next();
    if values.next().is_some() { None } else { first }.filter(|value| !value.is_empty())
}

/// A tool as a card's heading shows it, or as its identifier, or the beginning of either.
fn identifier(tool: &str) -> String {
    match tool.contains(' ') {
        true => tool.to_lowercase().replace(' ', "_"),
        false => tool.to_owned(),
    }
}

/// The filter of a list, or of its news frame.
fn filter(request: &HttpRequest) -> Filter {
    Filter {
        user: parameter(request, "user"),
        tool: parameter(request, "tool"),
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

/// How the address of a page names its action.
#[derive(Clone, Copy)]
enum By {
    /// By its approval.
    Approval,
    /// By itself: it may have needed no approval.
    Action,
}

async fn waiting(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    // A page that refreshes itself does not keep its visitor logged in.
    let visitor = match parameter(request, "auto") {
        Some(_) => onlooker(state, request).await?,
        None => visitor(state, request).await?,
    };
    let filter = filter(request);
    let approvals = &state.edge.approvals;
    let list = async |status, token| {
        let query = actions(Which::In(status), &filter, token);
        approvals.list(&visitor.caller, visitor.user.clone(), query).await
    };
    let token = parameter(request, "page_token");
    let pending = list(ActionStatus::AwaitingConfirmation, token.clone()).await?;
    let in_doubt = match token {
        None => Some(list(ActionStatus::InDoubt, None).await?),
        Some(_) => None,
    };
    let flash = flash(state, &visitor, request).await?;
    let now = state.edge.runs.now_us();
    let rows = |actions: &[Action]| {
        let rows = actions
            .iter()
            .map(|action| row(&of(state, &visitor, action, now), false));
        rows.collect::<Vec<_>>()
    };
    let waits: Vec<_> = pending.items.into_iter().filter(|action| action.waits(now)).collect();
    let list = Listed {
        visitor: &visitor,
        filter: &filter,
        flash,
        rows: rows(&waits),
        page: token.as_deref(),
        is_paused: parameter(request, "still").is_some(),
        next: pending.next_page_token.as_deref(),
        in_doubt: in_doubt.as_ref().map(|page| rows(&page.items)).unwrap_or_default(),
        more_in_doubt: in_doubt.as_ref().is_some_and(|page| page.next_page_token.is_some()),
    };
    let more = if pending.next_page_token.is_some() { "+" } else { "" };
    let title = match waits.len() {
        0 => "Approvals".to_owned(),
        count => format!("({count}{more}) Approvals"),
    };
    let mut response = page(StatusCode::OK, Some(&visitor), &title, &listed(&list));
    if let Some(refresh) = list.refresh().and_then(|value| HeaderValue::from_str(&value).ok()) {
        response.headers_mut().insert(header::REFRESH, refresh);
    }
    Ok(response)
}

/// Requests that were answered or expired, the latest request first.
async fn answered_before(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let filter = filter(request);
    let mut query = actions(Which::Answered, &filter, parameter(request, "page_token"));
    query.list.order_by = Some("created_at desc".to_owned());
    let found = state.edge.approvals.list(&visitor.caller, visitor.user.clone(), query);
    let found = found.await?;
    let now = state.edge.runs.now_us();
    let rows: Vec<_> = found
        .items
        .iter()
        .map(|action| row(&of(state, &visitor, action, now), true))
        .collect();
    let body = view::approvals::answered(&visitor, &filter, &rows, found.next_page_token.as_deref());
    Ok(page(StatusCode::OK, Some(&visitor), "Answered requests", &body))
}

/// The page of an approval request, or of an action.
async fn shown(state: &State, request: &HttpRequest, by: By) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let (approvals, user) = (&state.edge.approvals, visitor.user.clone());
    let action = match by {
        By::Approval => approvals.question(&visitor.caller, user, approval(request)?).await?,
        By::Action => approvals.action(&visitor.caller, user, action_id(request)?).await?,
    };
    let flash = flash(state, &visitor, request).await?;
    let card = card(&of(state, &visitor, &action, state.edge.runs.now_us()), Place::Own);
    let body = view::approvals::one(flash, &card);
    Ok(page(
        StatusCode::OK,
        Some(&visitor),
        &view::words::name(&action.tool),
        &body,
    ))
}

/// HTML among the arguments of an action, as its recipient sees it.
async fn message(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    // On a page of its own its links would open.
    let place = headers::only(request.headers(), &HeaderName::from_static("sec-fetch-dest"));
    if place.is_some_and(|place| place != "iframe") {
        return Err(Error::NotFound.into());
    }
    let visitor = onlooker(state, request).await?;
    let approvals = &state.edge.approvals;
    let action = approvals.action(&visitor.caller, visitor.user.clone(), action_id(request)?);
    let action = action.await?;
    let arguments: Value = serde_json::from_str(action.arguments.get()).unwrap_or_default();
    let html = parameter(request, "at").and_then(|at| arguments.pointer(&at)?.as_str().and_then(hypertext::framed));
    Ok(match html {
        Some(document) => foreign(document),
        None => framed(view::approvals::in_place(
            "This HTML is too long to be shown here. Read the HTML itself, below.",
        )),
    })
}

/// The data of a card.
pub(super) fn of<'a>(state: &State, visitor: &'a Visitor, action: &'a Action, now_us: i64) -> Card<'a> {
    Card {
        action,
        tool: state.edge.approvals.tool(action),
        visitor,
        now_us,
    }
}

/// The message about the action that the visitor just decided, from the stored action; `about` and `settled` only
/// identify it.
pub(super) async fn flash(
    state: &State,
    visitor: &Visitor,
    request: &HttpRequest,
) -> Result<Option<maud::Markup>, Turned> {
    let approvals = &state.edge.approvals;
    let about = parameter(request, "about");
    let found = match (about, parameter(request, "settled")) {
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
            let late = parameter(request, "late").is_some();
            Ok(Some(view::action::flash(
                &of(state, visitor, &action, state.edge.runs.now_us()),
                late,
            )))
        }
        Err(ApprovalError::Store(StoreFailure::NotFound)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn resolved(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let form = Form::read(state, request, payload, visitor.form_token.as_deref()).await?;
    let approval = approval(request)?;
    let resolution = form.get("decision").and_then(Resolution::parse);
    let reason = form.text("reason");
    if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        return Err(form::invalid("reason", "is too long"));
    }
    let answer = Answer {
        approval,
        resolution: resolution.ok_or_else(|| form::invalid("decision", "does not match a button of the form"))?,
        reason,
        key: None,
    };
    let user = visitor.user.clone();
    let late = match state.edge.approvals.resolve(&visitor.caller, user, answer).await {
        Ok(run) => {
            rests(state, &visitor, run.run).await;
            ""
        }
        // The page shows the earlier decision and its approver.
        Err(ApprovalError::Resolved(..)) => "&late=1",
        Err(error) => return Err(error.into()),
    };
    Ok(see(&format!(
        "{}?about={approval}{late}",
        list_or_session(state, &visitor, &form).await
    )))
}

/// Waits briefly for the resumed run. The decision is valid even if the run cannot be read now.
async fn rests(state: &State, visitor: &Visitor, run: RunId) {
    let rests = tokio::time::timeout(PATIENCE, state.edge.runs.rests(&visitor.caller, run));
    if let Ok(Err(error)) = rests.await {
        tracing::warn!(run_id = %run, %error, "an approval was resolved, and the state of its run cannot be read");
    }
}

async fn settled(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let form = Form::read(state, request, payload, visitor.form_token.as_deref()).await?;
    let id = action_id(request)?;
    let happened = match form.get("happened") {
        Some("yes") => true,
        Some("no") => false,
        _ => return Err(form::invalid("happened", "does not match a button of the form")),
    };
    let user = visitor.user.clone();
    let late = match state
        .edge
        .approvals
        .settle(&visitor.caller, user, id, happened, None)
        .await
    {
        Ok(_) => "",
        Err(ApprovalError::NotInDoubt(_)) => "&late=1",
        Err(error) => return Err(error.into()),
    };
    Ok(see(&format!(
        "{}?settled={id}{late}",
        list_or_session(state, &visitor, &form).await
    )))
}

/// The page that had the form: the list, or a planning session if the visitor may still read it.
async fn list_or_session(state: &State, visitor: &Visitor, form: &Form) -> String {
    if let Some(session) = form.get("back").and_then(PlanningSessionId::parse) {
        let reads = visitor.reads.as_ref();
        if state
            .edge
            .planning
            .session(&visitor.caller, reads, session)
            .await
            .is_ok()
        {
            return format!("{}/{session}", paths::SESSIONS);
        }
    }
    paths::APPROVALS.to_owned()
}

fn approval(request: &HttpRequest) -> Result<ApprovalId, Error> {
    let id = request.match_info().get("id").and_then(ApprovalId::parse);
    id.ok_or(Error::NotFound)
}

fn action_id(request: &HttpRequest) -> Result<ActionId, Error> {
    let id = request.match_info().get("id").and_then(ActionId::parse);
    id.ok_or(Error::NotFound)
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
