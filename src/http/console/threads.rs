//! Console pages of a user's threads.

use crate::http::request::Raw;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};

use super::super::State;
use super::super::error::Error;
use super::super::query;
use super::approvals::{of, parameter};
use super::session::{Visitor, visitor};
use super::view::thread::{Line, thread as view, threads};
use super::{Turned, page, respond};
use crate::domain::action::{Action, ActionStatus};
use crate::domain::ids::{RunId, ThreadId, UserId};
use crate::domain::thread::{MessageKind, MessageRole, ThreadMessage};
use crate::surfaces::decisions::ListQuery;

pub(in crate::http) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, listed(&state, &request).await).await))
}

pub(in crate::http) async fn thread(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, shown(&state, &request).await).await))
}

async fn listed(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    reads_threads(&visitor)?;
    let query = ListQuery {
        page_size: super::PAGE_SIZE,
        page_token: parameter(request, "page_token"),
        ..ListQuery::default()
    };
    let found = state.edge.threads.list(&visitor.caller, visitor.reads.clone(), query);
    let found = found.await?;
    let body = threads(&visitor, &found.items, found.next_page_token.as_deref());
    Ok(page(StatusCode::OK, Some(&visitor), "Threads", &body))
}

/// only its user reads a thread. The approval request contains everything that an approver needs.
fn reads_threads(visitor: &Visitor) -> Result<(), Error> {
    match visitor.user {
        Some(_) => Ok(()),
        None => Err(Error::NotFound),
    }
}

async fn shown(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let id = request.match_info().get("id").and_then(ThreadId::parse);
    let id = id.ok_or(Error::NotFound)?;
    let before = parameter(request, "before").and_then(|before| query::number(&before));
    let threads = &state.edge.threads;
    reads_threads(&visitor)?;
    let thread = threads
        .thread(&visitor.caller, visitor.reads.as_ref(), id, before)
        .await?;
    let mut actions: HashMap<RunId, Vec<Action>> = HashMap::new();
    for message in &thread.messages {
        if let Entry::Vacant(run) = actions.entry(message.run_id) {
            run.insert(state.edge.approvals.of_run(message.run_id).await?);
        }
    }
    // The actions of a run lack what their requests showed, except those that still wait.
    let named = |message: &&ThreadMessage| matches!(message.kind, MessageKind::ApprovalRequest | MessageKind::Action);
    let named = thread
        .messages
        .iter()
        .filter(named)
        .filter_map(|message| message.action_id);
    for id in named.collect::<BTreeSet<_>>() {
        let known = actions.values_mut().flatten().find(|action| action.id == id);
        if let Some(known) = known.filter(|action| action.status != ActionStatus::AwaitingConfirmation) {
            // Who may read the thread may read its actions, which are its user's.
            let user = UserId::parse(&thread.user_id).ok();
            let whole = state.edge.approvals.action(&visitor.caller, user, id);
            *known = whole.await?;
        }
    }
    let now = state.edge.runs.now_us();
    let lines: Vec<_> = thread
        .messages
        .iter()
        .map(|message| Line {
            message,
            // An action that required approval is shown at its approval request and its outcome, any other at the
            // user's message.
            actions: actions[&message.run_id]
                .iter()
                .filter(|action| match (message.kind, message.role) {
                    (MessageKind::ApprovalRequest | MessageKind::Action, _) => Some(action.id) == message.action_id,
                    (MessageKind::Message, MessageRole::User) => action.approval.is_none(),
                    _ => false,
                })
                .map(|action| of(state, &visitor, action, now))
                .collect(),
        })
        .collect();
    let body = view(&visitor, &thread, &lines);
    Ok(page(StatusCode::OK, Some(&visitor), "Thread", &body))
}
