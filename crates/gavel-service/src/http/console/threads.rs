//! Console pages of a user's threads.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;

use super::approvals::of;
use super::session::Visitor;
use super::view::thread::{Line, thread as view, threads};
use super::{Parameters, Turned, page};
use crate::api::threads::ThreadMessage;
use crate::domain::action::{Action, ActionStatus};
use crate::domain::ids::{RunId, ThreadId, UserId};
use crate::domain::thread::{MessageKind, MessageRole};
use crate::http::error::Error;
use crate::http::query;
use crate::http::request::{Id, Open};
use crate::surfaces::decisions::ListQuery;

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Result<HttpResponse, Turned> {
    reads_threads(&visitor)?;
    let query = ListQuery {
        page_size: super::PAGE_SIZE,
        page_token: given.get("page_token"),
        ..ListQuery::default()
    };
    let found = edge.threads.list(&visitor.caller, visitor.reads.clone(), query);
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

pub(crate) async fn thread(
    edge: Open,
    visitor: Visitor,
    Id(id): Id<ThreadId>,
    given: Parameters,
) -> Result<HttpResponse, Turned> {
    let before = given.get("before").and_then(|before| query::number(&before));
    let threads = &edge.threads;
    reads_threads(&visitor)?;
    let thread = threads
        .thread(&visitor.caller, visitor.reads.as_ref(), id, before)
        .await?;
    let mut actions: HashMap<RunId, Vec<Action>> = HashMap::new();
    for message in &thread.messages {
        if let Entry::Vacant(run) = actions.entry(message.run_id) {
            run.insert(edge.approvals.of_run(message.run_id).await?);
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
            let whole = edge.approvals.action(&visitor.caller, user, id);
            *known = whole.await?;
        }
    }
    let now = edge.runs.now_us();
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
                .map(|action| of(&edge, &visitor, action, now))
                .collect(),
        })
        .collect();
    let body = view(&visitor, &thread, &lines);
    Ok(page(StatusCode::OK, Some(&visitor), "Thread", &body))
}
