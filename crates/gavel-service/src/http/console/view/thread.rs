//! The list of threads, and one thread: messages, approval requests, decisions and outcomes.

use crate::http::console::paths;
use maud::{Markup, html};

use super::super::nothing;
use super::super::session::Visitor;
use super::action::{Card, row};
use super::room::TEXT;
use super::{next, words};
use crate::api::threads::{Thread, ThreadMessage, ThreadSummary};
use crate::domain::thread::{self, MessageKind, MessageRole};

/// Renders the list of threads.
pub(crate) fn threads(visitor: &Visitor, threads: &[ThreadSummary], more: Option<&str>) -> Markup {
    html! {
        h1 { "Threads" }
        p.lead { "Conversations with agents, the latest first." }
        @if threads.is_empty() { (nothing("There are no threads yet.")) }
        @for thread in threads { (summary(visitor, thread)) }
        @if more.is_some() { (next(paths::THREADS, &[("page_token", more)])) }
    }
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
pub(crate) fn thread(visitor: &Visitor, thread: &Thread, lines: &[Line<'_>]) -> Markup {
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
            @for line in lines { (one(visitor, thread, line)) }
        }
    }
}

fn one(visitor: &Visitor, thread: &Thread, line: &Line<'_>) -> Markup {
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
