//! What words refer to: a task, a position in the list, or something named before.

use super::conversation::Conversation;
use super::language::{self, Compiled, Place};
use super::steps::unquoted;
use super::understand::{MAX_MESSAGE, Step, Target, Understood, Wish, normal, rule, trimmed, understand};
use crate::domain::journal::Speaker;

/// The task that `words` refer to. For a pointer, it is the task named last, if there is exactly one.
pub(super) fn target(words: &str, conversation: &Conversation<'_>, language: &Compiled) -> Option<Target> {
    let words = unquoted(words);
    if let Some(place) = place(words, language) {
        return Some(Target::Place(place));
    }
    if language.pointer.is_match(words) {
        return match named_last(conversation).as_slice() {
            [one] => Some(Target::Words(one.clone())),
            _ => None,
        };
    }
    Some(Target::Words(words.to_owned()))
}

pub(super) fn place(words: &str, language: &Compiled) -> Option<Place> {
    language
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
    let thing = trimmed(&text, &language::all()[0]);
    (!thing.is_empty() && language::all().iter().all(|language| rule(thing, language).is_none()))
        .then(|| thing.to_owned())
}

/// For an answer to "which one do you mean": the earlier request, with the chosen task.
pub(super) fn chosen(message: &str, conversation: &Conversation<'_>, spoken: &'static Compiled) -> Option<Understood> {
    let names = named_last(conversation);
    let [.., (Speaker::User, before), (Speaker::Assistant, asked)] = conversation.history.as_slice() else {
        return None;
    };
    if names.len() < 2 || !asked.trim_end().ends_with('?') || before.len() > MAX_MESSAGE {
        return None;
    }
    let answer = unquoted(trimmed(message, spoken)).to_lowercase();
    let picked = match place(&answer, spoken) {
        Some(Place::Nth(n)) => names.get(n - 1),
        Some(Place::Last) => names.last(),
        None => {
            let answer = spoken.tables.stop.iter().fold(format!(" {answer} "), |text, stop| {
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
    let Understood {
        wish: Wish::Steps(mut steps),
        language,
    } = understand(&earlier)
    else {
        return None;
    };
    let picked = Target::Words(picked.clone());
    match steps.last_mut()? {
        Step::Complete(target) | Step::Delete(target) | Step::Change(target, _) => *target = picked,
        Step::Add { .. } | Step::List(_) => return None,
    }
    Some(Understood {
        wish: Wish::Steps(steps),
        language,
    })
}
