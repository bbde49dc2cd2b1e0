//! Converts a clause to steps.

use chrono::NaiveDate;
use regex::Captures;

use super::clause::unquoted;
use super::conversation::Conversation;
use super::dates;
use super::english::english;
use super::language::Act;
use super::refer::{spoken_of, target};
use super::wish::{Filter, Patch, Step};

/// The steps of one clause. `None` if it refers to something that does not exist.
pub(super) fn step(act: Act, captures: &Captures<'_>, conversation: &Conversation<'_>) -> Option<Vec<Step>> {
    let group = |name: &str| captures.name(name).map_or("", |found| found.as_str()).trim();
    let today = conversation.today;
    let one = |step| Some(vec![step]);
    match act {
        Act::Add => {
            if english().pointer.is_match(group("x")) {
                return Some(vec![add(&spoken_of(conversation)?, group("tail"), "", today)]);
            }
            one(add(group("x"), group("tail"), group("p"), today))
        }
        Act::AddMany => Some(
            english()
                .and
                .split(group("x"))
                .map(|thing| add(thing, group("tail"), "", today))
                .collect(),
        ),
        Act::AddIt => one(add(&spoken_of(conversation)?, "", "", today)),
        Act::List => one(Step::List(filter(&format!("{} {}", group("f"), group("tail")), today))),
        Act::ListDone => one(Step::List(Filter {
            status: Some("done"),
            ..Filter::default()
        })),
        Act::Complete => one(Step::Complete(target(group("x"), conversation)?)),
        Act::Delete => one(Step::Delete(target(group("x"), conversation)?)),
        Act::Change => {
            let patch = patch(group("y"), today);
            one(Step::Change(target(group("x"), conversation)?, patch))
        }
        Act::Note => one(Step::Change(
            target(group("x"), conversation)?,
            Patch::Notes(unquoted(group("y")).to_owned()),
        )),
        _ => Some(Vec::new()),
    }
}

fn add(words: &str, tail: &str, priority: &str, today: Option<NaiveDate>) -> Step {
    let mut due = dates::take(tail, today).0;
    let mut words = unquoted(words).to_owned();
    if due.is_none() {
        (due, words) = dates::take(&words, today);
    }
    let mut level = self::priority(priority);
    for (pattern, name) in [
        (&english().high, "high"),
        (&english().low, "low"),
        (&english().normal, "normal"),
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

fn priority(words: &str) -> Option<&'static str> {
    let levels = [
        (&english().high, "high"),
        (&english().low, "low"),
        (&english().normal, "normal"),
    ];
    levels
        .into_iter()
        .find(|(pattern, _)| pattern.is_match(words))
        .map(|(_, name)| name)
}

fn filter(words: &str, today: Option<NaiveDate>) -> Filter {
    let Some(today) = today else { return Filter::default() };
    if english().overdue.is_match(words) {
        return Filter {
            before: Some(today),
            ..Filter::default()
        };
    }
    if english().this_week.is_match(words) {
        let after = today.pred_opt();
        return Filter {
            after,
            before: today.checked_add_days(chrono::Days::new(8)),
            ..Filter::default()
        };
    }
    match dates::take(words, Some(today)).0 {
        Some(day) => Filter {
            after: day.pred_opt(),
            before: day.succ_opt(),
            ..Filter::default()
        },
        None => Filter::default(),
    }
}

fn patch(words: &str, today: Option<NaiveDate>) -> Patch {
    let words = unquoted(words);
    if let (Some(date), rest) = dates::take(words, today)
        && rest.is_empty()
    {
        return Patch::Due(date);
    }
    for (pattern, name) in [
        (&english().high, "high"),
        (&english().low, "low"),
        (&english().normal, "normal"),
    ] {
        if pattern.find(words).is_some_and(|found| found.as_str() == words) {
            return Patch::Priority(name);
        }
    }
    Patch::Description(words.to_owned())
}
