//! One line of a list: what would be done, for whom, to whom, in its first words, and until when.

use maud::{Markup, html};
use serde_json::Value;

use super::super::words;
use super::{Card, link, of_first, state, title, warning_count};
use crate::domain::action::ActionStatus;

/// Most characters of the first words of a call.
const WORDS: usize = 140;

/// Renders a line that leads to the page of the action, with its state if the list does not say it.
pub(crate) fn row(card: &Card<'_>, with_state: bool) -> Markup {
    let action = card.action;
    let warnings = warning_count(card);
    html! {
        li.row {
            div.what {
                a href=(link(action)) { (title(card)) }
                " " span.tool { (words::code(&action.tool)) }
                @if warnings > 0 { " " span.badge { (words::count(warnings, "warning")) } }
            }
            div.when {
                @if action.status == ActionStatus::InDoubt { "sent " (words::relative(action.started_at.unwrap_or(action.created_at), card.now_us)) }
                @else if let Some(at) = action.resolved_at { "answered " (words::relative(at, card.now_us)) }
                @else if let Some(at) = action.expires_at.filter(|_| action.waits(card.now_us)) { "expires " (words::relative(at, card.now_us)) }
            }
            div.whom {
                "for " bdi { (words::text(&action.user)) }
                @if let Some(recipients) = &action.details.recipients { " · to " (of_first(recipients, card.tool.as_deref(), 1)) }
                @let said = beginning(card);
                @if !said.is_empty() { " · " span.words dir="auto" { (words::text(&said)) } }
            }
            @if with_state {
                div.state { @if action.waits(card.now_us) { "Waits for approval." } @else { (state(card)) } }
            }
        }
    }
}

/// The first words of the call: its texts in the order in which a person reads them, without the recipients.
fn beginning(card: &Card<'_>) -> String {
    let given: Value = serde_json::from_str(card.action.arguments.get()).unwrap_or_default();
    let Value::Object(fields) = &given else {
        return String::new();
    };
    let recipients = card.action.details.recipients.as_ref();
    let names_people = |name: &str| {
        recipients.is_some_and(|recipients| {
            let mut arguments = recipients.by_argument();
            arguments.any(|(argument, _)| argument.split(['.', '[']).next() == Some(name))
        })
    };
    let mut texts: Vec<_> = fields
        .iter()
        .filter(|(name, _)| !names_people(name))
        .filter_map(|(name, value)| Some((name, value.as_str()?)))
        .collect();
    texts.sort_by_key(|(name, text)| {
        let is_long = text.contains('\n') || text.chars().nth(WORDS).is_some();
        let order = card.tool.as_ref().map(|tool| tool.reading_order(name, is_long));
        order.unwrap_or((usize::from(is_long), 0))
    });
    let mut said = String::new();
    for (_, text) in texts {
        for (n, word) in text.split_whitespace().enumerate() {
            if !said.is_empty() {
                said.push_str(if n == 0 { " · " } else { " " });
            }
            said.extend(word.chars().take(WORDS));
            if said.chars().nth(WORDS).is_some() {
                return said.chars().take(WORDS).chain(['…']).collect();
            }
        }
    }
    said
}
