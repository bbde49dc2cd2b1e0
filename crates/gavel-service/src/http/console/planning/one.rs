//! The page of one session.

use std::collections::HashMap;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use maud::Markup;

use super::super::super::Edge;
use super::super::super::request::{Id, Open};
use super::super::approvals::{flash, of};
use super::super::session::Visitor;
use super::super::view::action::{Place, card};
use super::super::view::planning::one::{Shown, one, title};
use super::super::{Parameters, Turned, page};
use super::seen;
use super::versions::latest;
use crate::api::planning::{Session, Step};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskId;
use crate::surfaces::StoreFailure;
use crate::surfaces::approvals::ApprovalError;

/// Most steps of all tasks on this page; each task has a page of its own.
const MOST_STEPS: u32 = 60;
/// Most actions of the log on this page.
const MOST_ACTIONS: usize = 50;
/// Most actions that wait for a person, each with its forms.
const MOST_CARDS: usize = 10;

pub(crate) async fn show(
    edge: Open,
    visitor: Visitor,
    Id(id): Id<PlanningSessionId>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let planning = &edge.planning;
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
        flash: flash(&edge, &visitor, &given).await?,
        late: is_late(&given),
        cards: cards(&edge, &visitor, &session).await?,
        steps: &steps(&edge, &visitor, &session).await?,
        actions: &actions,
        more_actions,
        history: &latest(&edge, &visitor, id, session.plan_version).await?,
        link: &link,
    });
    Ok(page(StatusCode::OK, Some(&visitor), &title(&session), &body))
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
        let found = approvals
            .action(&visitor.caller, visitor.user.clone(), wait.action_id)
            .await;
        let action = match found {
            Ok(action) => action,
            // It was deleted since.
            Err(ApprovalError::Store(StoreFailure::NotFound)) => continue,
            Err(error) => return Err(error.into()),
        };
        cards.push(card(&of(edge, visitor, &action, now), place));
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
