//! Converts a message to a wish: clauses by the tables of English, then context from the history.

use super::clause::{MAX_MESSAGE, normal, rule, trimmed, unquoted};
use super::conversation::Conversation;
use super::english::english;
use super::language::{Act, Place};
use super::refer::{named_last, place};
use super::steps::step;
use super::wish::{Step, Target, Wish};
use crate::domain::journal::Speaker;

/// Understands the newest message.
pub(super) fn understand(conversation: &Conversation<'_>) -> Wish {
    let message = normal(conversation.message);
    if message.len() > MAX_MESSAGE {
        return Wish::UnclearPointer;
    }
    let wish = chosen(&message, conversation).or_else(|| wish(&message, conversation));
    wish.unwrap_or_else(|| {
        let thing = trimmed(&message);
        if thing.is_empty() || english().pointer.is_match(thing) || place(thing).is_some() {
            Wish::UnclearPointer
        } else {
            Wish::Unclear(thing.to_owned())
        }
    })
}

fn wish(message: &str, conversation: &Conversation<'_>) -> Option<Wish> {
    let clauses = clauses(message);
    let mut steps = Vec::new();
    let mut talk = None;
    for clause in &clauses {
        let (act, captures) = rule(clause)?;
        match act {
            Act::Harmful | Act::DeleteAll | Act::OthersTasks | Act::OutOfScope => return Some(Wish::Decline(act)),
            Act::Greeting | Act::HowAreYou | Act::Thanks | Act::Bye | Act::Capabilities | Act::Joke => {
                talk = Some(Wish::Talk(act));
            }
            _ => match step(act, &captures, conversation) {
                Some(more) => steps.extend(more),
                None => return Some(Wish::UnclearPointer),
            },
        }
    }
    if steps.is_empty() {
        talk
    } else {
        Some(Wish::Steps(steps))
    }
}

/// Splits a message where a new request begins.
fn clauses(message: &str) -> Vec<&str> {
    let mut clauses = Vec::new();
    let mut rest = trimmed(message);
    'cut: loop {
        let breaks = english().then.find_iter(rest).map(|found| (found, true));
        let mut breaks: Vec<_> = breaks
            .chain(english().and.find_iter(rest).map(|found| (found, false)))
            .collect();
        breaks.sort_by_key(|(found, _)| found.start());
        for (found, strong) in breaks {
            let after = trimmed(&rest[found.end()..]);
            let begins = rule(after).is_some_and(|(act, _)| strong || is_command(act));
            let before = trimmed(&rest[..found.start()]);
            if begins && rule(before).is_some() {
                clauses.push(before);
                rest = after;
                continue 'cut;
            }
        }
        clauses.push(rest);
        return clauses;
    }
}

fn is_command(act: Act) -> bool {
    matches!(
        act,
        Act::DeleteAll
            | Act::Add
            | Act::AddMany
            | Act::List
            | Act::ListDone
            | Act::Complete
            | Act::Delete
            | Act::Change
            | Act::Note
    )
}

/// For an answer to "which one do you mean": the earlier request, with the chosen task.
fn chosen(message: &str, conversation: &Conversation<'_>) -> Option<Wish> {
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
