//! What words refer to: a task, a position in the list, or something named before.

use super::conversation::Conversation;
use super::language::{Place, english};
use super::steps::unquoted;
use super::understand::{MAX_MESSAGE, Step, Target, Wish, normal, rule, trimmed, understand};
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
fn named_last(conversation: &Conversation<'_>) -> Vec<String> {
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

/// For an answer to "which one do you mean": the earlier request, with the chosen task.
pub(super) fn chosen(message: &str, conversation: &Conversation<'_>) -> Option<Wish> {
    let names = named_last(conversation);
    let [.., (Speaker::User, before), (Speaker::Assistant, asked)] = conversation.history.as_slice() else {
        return None;
    };
    if names.len() < 2 || !asked.trim_end().ends_with('?') || before.len() > MAX_MESSAGE {
        return None;
    }
    let answer = unquoted(trimmed(message)).to_lowercase();
    let picked = match place(&answer) {
        Some(Place::Nth(n)) => names.get(n - 1),
        Some(Place::Last) => names.last(),
        None => {
            let answer = english().tables.stop.iter().fold(format!(" {answer} "), |text, stop| {
                text.replace(&format!(" {stop} "), " ")
            });
            let words = answer.trim();
            let mut fitting = names
                .iter()
                .filter(|name| !words.is_empty() && name.to_lowercase().contains(words));
            fitting.next().filter(|_| fitting.next().is_none())
        }
    }?;
    let earlier = Conversation {
        message: before,
        today: conversation.today,
        history: Vec::new(),
        done: Vec::new(),
        turns: 0,
    };
    let Wish::Steps(mut steps) = understand(&earlier) else {
        return None;
    };
    let picked = Target::Words(picked.clone());
    match steps.last_mut()? {
        Step::Complete(target) | Step::Delete(target) | Step::Change(target, _) => *target = picked,
        Step::Add { .. } | Step::List(_) => return None,
    }
    Some(Wish::Steps(steps))
}
