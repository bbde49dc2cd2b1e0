//! Converts a clause to steps.

use chrono::NaiveDate;
use regex::Captures;

use super::conversation::Conversation;
use super::dates;
use super::language::{Act, Compiled};
use super::refer::{spoken_of, target};
use super::understand::{Filter, Patch, Step};

/// The steps of one clause. `None` if it refers to something that does not exist.
pub(super) fn step(
    act: Act,
    captures: &Captures<'_>,
    conversation: &Conversation<'_>,
    language: &Compiled,
) -> Option<Vec<Step>> {
    let group = |name: &str| captures.name(name).map_or("", |found| found.as_str()).trim();
    let today = conversation.today;
    let one = |step| Some(vec![step]);
    match act {
        Act::Add => {
            if language.pointer.is_match(group("x")) {
                return Some(vec![add(&spoken_of(conversation)?, group("tail"), "", today, language)]);
            }
            one(add(group("x"), group("tail"), group("p"), today, language))
        }
        Act::AddMany => Some(
            language
                .and
                .split(group("x"))
                .map(|thing| add(thing, group("tail"), "", today, language))
                .collect(),
        ),
        Act::AddIt => one(add(&spoken_of(conversation)?, "", "", today, language)),
        Act::List => one(Step::List(filter(
            &format!("{} {}", group("f"), group("tail")),
            today,
            language,
        ))),
        Act::ListDone => one(Step::List(Filter {
            status: Some("done"),
            ..Filter::default()
        })),
        Act::Complete => one(Step::Complete(target(group("x"), conversation, language)?)),
        Act::Delete => one(Step::Delete(target(group("x"), conversation, language)?)),
        Act::Change => {
            let patch = patch(group("y"), today, language);
            one(Step::Change(target(group("x"), conversation, language)?, patch))
        }
        Act::Note => one(Step::Change(
            target(group("x"), conversation, language)?,
            Patch::Notes(unquoted(group("y")).to_owned()),
        )),
        _ => Some(Vec::new()),
    }
}

fn add(words: &str, tail: &str, priority: &str, today: Option<NaiveDate>, language: &Compiled) -> Step {
    let mut due = dates::take(tail, today, language).0;
    let mut words = unquoted(words).to_owned();
    if due.is_none() {
        (due, words) = dates::take(&words, today, language);
    }
    let mut level = self::priority(priority, language);
    for (pattern, name) in [
        (&language.high, "high"),
        (&language.low, "low"),
        (&language.normal, "normal"),
    ] {
        // A bare "high" belongs to the description; only the whole phrase is a priority.
        if let Some(found) = pattern.find_iter(&words).find(|found| found.as_str().contains(' ')) {
            level = Some(name);
            words = format!("{} {}", words[..found.start()].trim(), words[found.end()..].trim())
                .trim()
                .to_owned();
            break;
        }
    }
    let words = words.trim_start_matches("to ").trim_matches([' ', ',', ':', '-']);
    Step::Add {
        description: unquoted(words).to_owned(),
        due,
        priority: level,
    }
}

fn priority(words: &str, language: &Compiled) -> Option<&'static str> {
    let levels = [
        (&language.high, "high"),
        (&language.low, "low"),
        (&language.normal, "normal"),
    ];
    levels
        .into_iter()
        .find(|(pattern, _)| pattern.is_match(words))
        .map(|(_, name)| name)
}

pub(super) fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'']).trim()
}

fn filter(words: &str, today: Option<NaiveDate>, language: &Compiled) -> Filter {
    let Some(today) = today else { return Filter::default() };
    if language.overdue.is_match(words) {
        return Filter {
            before: Some(today),
            ..Filter::default()
        };
    }
    if language.this_week.is_match(words) {
        let after = today.pred_opt();
        return Filter {
            after,
            before: today.checked_add_days(chrono::Days::new(8)),
            ..Filter::default()
        };
    }
    match dates::take(words, Some(today), language).0 {
        Some(day) => Filter {
            after: day.pred_opt(),
            before: day.succ_opt(),
            ..Filter::default()
        },
        None => Filter::default(),
    }
}

fn patch(words: &str, today: Option<NaiveDate>, language: &Compiled) -> Patch {
    let words = unquoted(words);
    if let (Some(date), rest) = dates::take(words, today, language)
        && rest.is_empty()
    {
        return Patch::Due(date);
    }
    for (pattern, name) in [
        (&language.high, "high"),
        (&language.low, "low"),
        (&language.normal, "normal"),
    ] {
        if pattern.find(words).is_some_and(|found| found.as_str() == words) {
            return Patch::Priority(name);
        }
    }
    Patch::Description(words.to_owned())
}
