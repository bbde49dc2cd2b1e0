//! The page of one session.

use crate::http::request::Raw;
use std::collections::HashMap;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use maud::Markup;

use super::super::super::State;
use super::super::approvals::{flash, of, parameter};
use super::super::session::{Visitor, visitor};
use super::super::view::action::{Place, card};
use super::super::view::planning::one::{Shown, one, title};
use super::super::{Turned, page, respond};
use super::versions::latest;
use super::{id, seen};
use crate::domain::plan::TaskId;
use crate::surfaces::StoreFailure;
use crate::surfaces::approvals::ApprovalError;
use crate::surfaces::planning::{Session, Step};

/// Most steps of all tasks on this page; each task has a page of its own.
const MOST_STEPS: u32 = 60;
/// Most actions of the log on this page.
const MOST_ACTIONS: usize = 50;
/// Most actions that wait for a person, each with its forms.
const MOST_CARDS: usize = 10;

pub(in crate::http) async fn show(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, shown(&state, &request).await).await))
}

async fn shown(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let (id, planning) = (id(request)?, &state.edge.planning);
    let session = planning.session(&visitor.caller, visitor.reads.as_ref(), id).await?;
    let range = (0, MOST_ACTIONS + 1);
    let mut actions = planning.log(&visitor.caller, visitor.reads.as_ref(), id, range).await?;
    let more_actions = actions.len() > MOST_ACTIONS;
    actions.truncate(MOST_ACTIONS);
    let link = |address: &str| planning.link(address);
    let body = one(&Shown {
        visitor: &visitor,
        session: &session,
        seen: &seen(&session),
        flash: flash(state, &visitor, request).await?,
        late: is_late(request),
        cards: cards(state, &visitor, &session).await?,
        steps: &steps(state, &visitor, &session).await?,
        actions: &actions,
        more_actions,
        history: &latest(state, &visitor, id, session.plan_version).await?,
        link: &link,
    });
    Ok(page(StatusCode::OK, Some(&visitor), &title(&session), &body))
}

/// Did a button of this page come too late? The forms of an action say which action they are about.
fn is_late(request: &HttpRequest) -> bool {
    let given = |name: &str| parameter(request, name).is_some();
    given("late") && !given("about") && !given("settled")
}

/// The actions that wait for a person, with the forms to answer.
async fn cards(state: &State, visitor: &Visitor, session: &Session) -> Result<Vec<Markup>, Turned> {
    let (approvals, now) = (&state.edge.approvals, state.edge.runs.now_us());
    let place = Place::Session(session.session_id);
    let mut cards = Vec::new();
    for wait in session.waiting_for.iter().flatten().take(MOST_CARDS) {
        let found = approvals
            .action(&visitor.caller, visitor.user.clone(), wait.action_id)
            .await;
        let action = match found {
            Ok(action) => action,
            // It was deleted since.
            Err(ApprovalError::Store(StoreFailure::NotFound)) => continue,
            Err(error) => return Err(error.into()),
        };
        cards.push(card(&of(state, visitor, &action, now), place));
    }
    Ok(cards)
}

/// The steps of the latest tasks, as far as there is room.
async fn steps(state: &State, visitor: &Visitor, session: &Session) -> Result<HashMap<TaskId, Vec<Step>>, Turned> {
    let planning = &state.edge.planning;
    let mut begun: Vec<_> = session.plan.iter().filter(|task| task.run_id.is_some()).collect();
    begun.sort_by(|one, other| other.started_at.cmp(&one.started_at));
    let (mut steps, mut left) = (HashMap::new(), MOST_STEPS);
    for task in begun {
        let Some(less) = left.checked_sub(task.steps) else {
            break;
        };
        left = less;
        let found = planning.task(
            &visitor.caller,
            visitor.reads.as_ref(),
            session.session_id,
            (task.id, 0),
        );
        match found.await {
            Ok(found) => steps.insert(task.id, found.react_history),
            // A change of the plan removed it since.
            Err(StoreFailure::NotFound) => continue,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(steps)
}
