//! Console pages of approval requests and in-doubt actions.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::super::State;
use super::super::error::Error;
use super::super::exchange::Exchange;
use super::super::routes::Route;
use super::form::{self, Form};
use super::session::{Visitor, visitor};
use super::view::action::{Card, Place, card, in_doubt_card};
use super::view::approvals::{Filter, Listed, listed};
use super::{Turned, page, respond, see, view};
use crate::domain::action::{Action, ActionStatus, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use crate::surfaces::StoreFailure;
use crate::surfaces::approvals::{ActionQuery, Answer, ApprovalError, MAX_REASON};
use crate::surfaces::decisions::ListQuery;

/// Approval requests per page.
pub(super) const PAGE_SIZE: u32 = 20;
/// How long a decision waits for the run that it resumes, so that the next page can show the outcome.
const PATIENCE: Duration = Duration::from_secs(4);

pub(in crate::http) async fn list(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ConsoleApprovals));
    exchange.finish(Ok(respond(&state, &request, waiting(&state, &request).await).await))
}

pub(in crate::http) async fn one(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ConsoleApproval));
    exchange.finish(Ok(respond(&state, &request, shown(&state, &request).await).await))
}

pub(in crate::http) async fn resolve(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ConsoleResolve));
    let answer = resolved(&state, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(Ok(respond(&state, &request, answer).await))
}

pub(in crate::http) async fn settle(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ConsoleSettle));
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
pub(super) fn filter(request: &HttpRequest) -> Filter {
    Filter {
        user: parameter(request, "user"),
        tool: parameter(request, "tool"),
    }
}

/// The query for a page of actions in a state.
pub(super) fn actions(status: ActionStatus, filter: &Filter, page_token: Option<String>) -> ActionQuery {
    ActionQuery {
        status,
        tool: filter.tool.as_deref().map(identifier),
        of_user: filter.user.clone(),
        list: ListQuery {
            page_size: PAGE_SIZE,
            page_token,
            ..ListQuery::default()
        },
    }
}

async fn waiting(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let filter = filter(request);
    let approvals = &state.edge.approvals;
    let list = async |status, token| {
        let query = actions(status, &filter, token);
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
    let body = listed(&Listed {
        visitor: &visitor,
        filter: &filter,
        flash,
        cards: pending
            .items
            .iter()
            .filter(|action| action.waits(now))
            .map(|action| card(&of(state, &visitor, action, now), Place::List))
            .collect(),
        seen: &seen(&pending.items),
        page: token.as_deref(),
        next: pending.next_page_token.as_deref(),
        in_doubt: in_doubt
            .iter()
            .flat_map(|page| &page.items)
            .map(|action| in_doubt_card(&of(state, &visitor, action, now), Place::List))
            .collect(),
        more_in_doubt: in_doubt.as_ref().is_some_and(|page| page.next_page_token.is_some()),
    });
    let count = pending.items.len();
    let more = if pending.next_page_token.is_some() { "+" } else { "" };
    let title = match count {
        0 => "Approvals".to_owned(),
        _ => format!("({count}{more}) Approvals"),
    };
    Ok(page(StatusCode::OK, Some(&visitor), &title, &body))
}

async fn shown(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let approvals = &state.edge.approvals;
    let action = approvals
        .question(&visitor.caller, visitor.user.clone(), approval(request)?)
        .await?;
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
            Ok(Some(view::action::flash(&action, visitor, late)))
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
    let place = match form.get("back") {
        Some("own") => format!("{}/{approval}", Route::ConsoleApprovals.path()),
        _ => list_or_session(&form),
    };
    Ok(see(&format!("{place}?about={approval}{late}")))
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
    let id = request.match_info().get("id").and_then(ActionId::parse);
    let id = id.ok_or(Error::NotFound)?;
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
    Ok(see(&format!("{}?settled={id}{late}", list_or_session(&form))))
}

/// The page that had the form: the list, or a planning session.
fn list_or_session(form: &Form) -> String {
    match form.get("back").and_then(PlanningSessionId::parse) {
        Some(session) => format!("{}/{session}", Route::ConsoleSessions.path()),
        None => Route::ConsoleApprovals.path().to_owned(),
    }
}

fn approval(request: &HttpRequest) -> Result<ApprovalId, Error> {
    let id = request.match_info().get("id").and_then(ApprovalId::parse);
    id.ok_or(Error::NotFound)
}

/// A hash that identifies the shown approval requests.
pub(super) fn seen(actions: &[Action]) -> String {
    let mut hash = Sha256::new();
    for action in actions {
        hash.update(action.id.to_string());
    }
    hex::encode(&hash.finalize()[..8])
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
