//! Converts a message to a wish: clauses by the tables of English, then context from the history.

use chrono::NaiveDate;
use regex::Captures;

use super::conversation::Conversation;
use super::language::{Act, Place, english};
use super::refer::{chosen, place};
use super::steps::step;

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

/// Longest message in bytes that the patterns are tried on. No request that this model knows is longer.
pub(super) const MAX_MESSAGE: usize = 2_000;

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
pub(super) fn trimmed(clause: &str) -> &str {
    let mut rest = clause.trim();
    while let Some(found) = english().lead.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[found.end()..].trim_start();
    }
    while let Some(found) = english().trail.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[..found.start()].trim_end();
    }
    rest
}

pub(super) fn rule(clause: &str) -> Option<(Act, Captures<'_>)> {
    english()
        .rules
        .iter()
        .find_map(|(act, rule)| rule.captures(clause).map(|captures| (*act, captures)))
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
