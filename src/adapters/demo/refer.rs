//! What words refer to: a task, a position in the list, or something named before.

use super::clause::{normal, rule, trimmed, unquoted};
use super::conversation::Conversation;
use super::english::english;
use super::language::Place;
use super::wish::Target;
use crate::domain::journal::Speaker;

/// The task that `words` refer to. For a pointer, it is the task named last, if there is exactly one.
pub(super) fn target(words: &str, conversation: &Conversation<'_>) -> Option<Target> {
    let words = unquoted(words);
    if let Some(place) = place(words) {
        return Some(Target::Place(place));
    }
    if english().pointer.is_match(words) {
        return match named_last(conversation).as_slice() {
            [one] => Some(Target::Words(one.clone())),
            _ => None,
        };
    }
    Some(Target::Words(words.to_owned()))
}

pub(super) fn place(words: &str) -> Option<Place> {
    english()
        .places
        .iter()
        .find(|(pattern, _)| pattern.is_match(words))
        .map(|(_, place)| *place)
}

/// The quoted names in the assistant's last message.
pub(super) fn named_last(conversation: &Conversation<'_>) -> Vec<String> {
    let said = conversation
        .history
        .iter()
        .rev()
        .find(|(speaker, _)| *speaker == Speaker::Assistant);
    let text = said.map(|(_, text)| normal(text)).unwrap_or_default();
    text.split('"')
        .skip(1)
        .step_by(2)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The thing that the user's last message named without a request.
pub(super) fn spoken_of(conversation: &Conversation<'_>) -> Option<String> {
    let said = conversation
        .history
        .iter()
        .rev()
        .find(|(speaker, _)| *speaker == Speaker::User)?;
    let text = normal(said.1);
    let thing = trimmed(&text);
    (!thing.is_empty() && rule(thing).is_none()).then(|| thing.to_owned())
}
