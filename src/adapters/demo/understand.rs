//! Converts a message to a wish: clauses by the tables of a language, then context from the history.

use chrono::NaiveDate;
use regex::Captures;

use super::conversation::Conversation;
use super::language::{self, Act, Compiled, Place};
use super::refer::{chosen, place};
use super::steps::step;
use crate::domain::journal::Speaker;

/// What the user wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    /// These steps, in order.
    Steps(Vec<Step>),
    /// A reply in words.
    Talk(Act),
    /// A request to decline.
    Decline(Act),
    /// A thing named without a request.
    Unclear(String),
    /// A pointer with nothing to refer to.
    UnclearPointer,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Add {
        description: String,
        due: Option<NaiveDate>,
        priority: Option<&'static str>,
    },
    List(Filter),
    Complete(Target),
    Delete(Target),
    Change(Target, Patch),
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter {
    /// `done` or `all`; absent means open tasks.
    pub(super) status: Option<&'static str>,
    /// Days, both exclusive.
    pub(super) after: Option<NaiveDate>,
    pub(super) before: Option<NaiveDate>,
}

/// Which task.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    Place(Place),
    Words(String),
}

/// What to change.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Patch {
    Description(String),
    Due(NaiveDate),
    Priority(&'static str),
    Notes(String),
}

/// A wish and the language of the message.
pub(super) struct Understood {
    pub(super) wish: Wish,
    pub(super) language: &'static Compiled,
}

/// Longest message in bytes that the patterns are tried on. No request that this model knows is longer.
pub(super) const MAX_MESSAGE: usize = 2_000;

/// Understands the newest message.
pub(super) fn understand(conversation: &Conversation<'_>) -> Understood {
    let spoken = language_of(conversation);
    let message = normal(conversation.message);
    if message.len() > MAX_MESSAGE {
        return Understood {
            wish: Wish::UnclearPointer,
            language: spoken,
        };
    }
    if let Some(understood) = chosen(&message, conversation, spoken) {
        return understood;
    }
    for language in language::all() {
        if let Some(wish) = wish(&message, conversation, language) {
            return Understood { wish, language };
        }
    }
    let thing = trimmed(&message, spoken);
    let pointer = thing.is_empty() || spoken.pointer.is_match(thing) || place(thing, spoken).is_some();
    let wish = if pointer {
        Wish::UnclearPointer
    } else {
        Wish::Unclear(thing.to_owned())
    };
    Understood { wish, language: spoken }
}

/// The language of the latest earlier message that was understood, otherwise the first language.
fn language_of(conversation: &Conversation<'_>) -> &'static Compiled {
    let said = conversation
        .history
        .iter()
        .rev()
        .filter(|(speaker, _)| *speaker == Speaker::User);
    let known = said
        .filter(|(_, text)| text.len() <= MAX_MESSAGE)
        .find_map(|(_, text)| {
            let text = normal(text);
            language::all()
                .iter()
                .find(|language| rule(trimmed(&text, language), language).is_some())
        });
    known.unwrap_or(&language::all()[0])
}

/// Normalizes quotes, apostrophes and white space.
pub(super) fn normal(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| match c {
            '’' | '‘' | '`' => '\'',
            '“' | '”' | '„' | '«' | '»' => '"',
            c => c,
        })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes courtesy from a clause.
pub(super) fn trimmed<'t>(clause: &'t str, language: &Compiled) -> &'t str {
    let mut rest = clause.trim();
    while let Some(found) = language.lead.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[found.end()..].trim_start();
    }
    while let Some(found) = language.trail.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[..found.start()].trim_end();
    }
    rest
}

pub(super) fn rule<'t>(clause: &'t str, language: &Compiled) -> Option<(Act, Captures<'t>)> {
    language
        .rules
        .iter()
        .find_map(|(act, rule)| rule.captures(clause).map(|captures| (*act, captures)))
}

fn wish(message: &str, conversation: &Conversation<'_>, language: &Compiled) -> Option<Wish> {
    let clauses = clauses(message, language);
    let mut steps = Vec::new();
    let mut talk = None;
    for clause in &clauses {
        let (act, captures) = rule(clause, language)?;
        match act {
            Act::Harmful | Act::DeleteAll | Act::OthersTasks | Act::OutOfScope => return Some(Wish::Decline(act)),
            Act::Greeting | Act::HowAreYou | Act::Thanks | Act::Bye | Act::Capabilities | Act::Joke => {
                talk = Some(Wish::Talk(act));
            }
            _ => match step(act, &captures, conversation, language) {
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
fn clauses<'t>(message: &'t str, language: &Compiled) -> Vec<&'t str> {
    let mut clauses = Vec::new();
    let mut rest = trimmed(message, language);
    'cut: loop {
        let breaks = language.then.find_iter(rest).map(|found| (found, true));
        let mut breaks: Vec<_> = breaks
            .chain(language.and.find_iter(rest).map(|found| (found, false)))
            .collect();
        breaks.sort_by_key(|(found, _)| found.start());
        for (found, strong) in breaks {
            let after = trimmed(&rest[found.end()..], language);
            let begins = rule(after, language).is_some_and(|(act, _)| strong || is_command(act));
            let before = trimmed(&rest[..found.start()], language);
            if begins && rule(before, language).is_some() {
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
