//! Console pages of a user's threads.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use maud::{Markup, html};

use crate::api::threads::{Thread, ThreadMessage, ThreadSummary};
use crate::domain::action::{Action, ActionStatus};
use crate::domain::ids::{RunId, ThreadId, UserId};
use crate::domain::thread::{self, MessageKind, MessageRole};
use crate::http::console::approvals::of;
use crate::http::console::session::Visitor;
use crate::http::console::view::action::{Card, row};
use crate::http::console::view::room::TEXT;
use crate::http::console::view::{address, next, words};
use crate::http::console::{Page, Parameters, nothing, paths};
use crate::http::error::{Code, Error};
use crate::http::request::{Id, Open};

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    reads_threads(&visitor)?;
    let found = edge.threads.list(&visitor.caller, visitor.reads.clone(), given.list());
    let found = found.await?;
    let more = found.next_page_token.as_deref();
    let body = html! {
        h1 { "Threads" }
        p.lead { "Conversations with agents, the latest first." }
        @if found.items.is_empty() { (nothing("There are no threads yet.")) }
        @for thread in &found.items { (summary(&visitor, thread)) }
        @if more.is_some() { (next(&address(paths::THREADS, &[("page_token", more)]))) }
    };
    Ok(visitor.page("Threads", &body))
}

/// only its user reads a thread. The approval request contains everything that an approver needs.
fn reads_threads(visitor: &Visitor) -> Result<(), Error> {
    match visitor.user {
        Some(_) => Ok(()),
        None => Err(Code::NotFound.into()),
    }
}

pub(crate) async fn thread(edge: Open, visitor: Visitor, Id(id): Id<ThreadId>, given: Parameters) -> Page {
    let before = given.number("before").map(u64::from);
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
    let body = thread_page(&visitor, &thread, &lines);
    Ok(visitor.page("Thread", &body))
}

fn summary(visitor: &Visitor, thread: &ThreadSummary) -> Markup {
    let title = format!("t-{}", thread.thread_id);
    let own = visitor
        .user
        .as_ref()
        .is_some_and(|user| user.as_str() == thread.user_id);
    html! {
        article.card aria-labelledby=(title) {
            div.heading {
                h2 #(title) dir="auto" {
                    a href={ (paths::THREADS) "/" (thread.thread_id) } {
                        @match &thread.title { Some(title) => (words::beginning(title, TEXT)), None => "Content not stored" }
                    }
                }
            }
            dl.about {
                @if !own { div { dt { "User" } dd { bdi { (words::text(&thread.user_id)) } } } }
                div { dt { "With" } dd { "the agent " bdi { (words::text(&thread.agent_id)) } } }
                div { dt { "Updated" } dd { (words::at(thread.updated_at.0, visitor.zone)) } }
                @if let Some(run) = &thread.latest_run { div { dt { "Latest run" } dd { (words::name(&run.state)) } } }
            }
        }
    }
}

/// A message with the current state of its actions: the one that it requests approval for or reports on, or those after
/// it that required no approval.
pub(crate) struct Line<'a> {
    pub(crate) message: &'a ThreadMessage,
    pub(crate) actions: Vec<Card<'a>>,
}

/// Renders the page of a thread.
pub(crate) fn thread_page(visitor: &Visitor, thread: &Thread, lines: &[Line<'_>]) -> Markup {
    let first = lines.first().map_or(1, |line| line.message.number);
    let path = format!("/console/threads/{}", thread.thread_id);
    let title = lines
        .first()
        .filter(|_| first == 1)
        .and_then(|line| thread::title(&line.message.text));
    html! {
        h1 dir="auto" { @match &title { Some(title) => (words::beginning(title, TEXT)), None => "Thread" } }
        p.lead {
            bdi { (words::text(&thread.user_id)) } " and the agent " bdi { (words::text(&thread.agent_id)) }
            ", since " (words::at(thread.created_at.0, visitor.zone)) ", last " (words::at(thread.updated_at.0, visitor.zone))
        }
        @if first > 1 { p.next { a href={ (path) "?before=" (first) } { "Earlier messages" } } }
        ol.thread {
            @for line in lines { (message(visitor, thread, line)) }
        }
    }
}

fn message(visitor: &Visitor, thread: &Thread, line: &Line<'_>) -> Markup {
    let message = line.message;
    let (class, who) = match (message.kind, message.role) {
        (MessageKind::Message, MessageRole::User) => ("user", thread.user_id.as_str()),
        (MessageKind::Message, MessageRole::Assistant) => ("assistant", thread.agent_id.as_str()),
        (MessageKind::ApprovalRequest, _) => ("asked", "Approval request"),
        (MessageKind::Approval | MessageKind::Settlement, _) => ("answered", "Answer"),
        (MessageKind::Action, _) => ("answered", "Action"),
    };
    html! {
        li class=(class) {
            p.said-by { b { bdi { (words::text(who)) } } " " small { (words::at(message.created_at.0, visitor.zone)) } }
            // An action's row says it better than the message, which also has each argument.
            @if message.kind == MessageKind::Message || line.actions.is_empty() {
                div.prose dir="auto" { (words::beginning(&message.text, TEXT)) }
            }
            @if !line.actions.is_empty() { ul.rows { @for action in &line.actions { (row(action, true)) } } }
        }
    }
}
