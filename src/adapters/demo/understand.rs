//! From a message to a wish: clauses by the tables of a language, then what the history adds.

use chrono::NaiveDate;
use regex::Captures;

use super::conversation::Conversation;
use super::dates;
use super::language::{self, Act, Compiled, Place};
use crate::domain::journal::Speaker;

/// What a person wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    /// These steps, in order.
    Steps(Vec<Step>),
    /// An answer in words.
    Talk(Act),
    /// Something to be declined.
    Decline(Act),
    /// A thing without a wish.
    Unclear(String),
    /// A pointer without something to point at.
    UnclearPointer,
}

/// One thing to be done.
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
    /// `done`, or `all`; absent: the open ones.
    pub(super) status: Option<&'static str>,
    /// Days, neither of them included.
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

/// A wish and the language it was said in.
pub(super) struct Understood {
    pub(super) wish: Wish,
    pub(super) language: &'static Compiled,
}

/// Longest message the patterns are tried on, in bytes: what is longer is no request this model knows.
const MAX_MESSAGE: usize = 2_000;

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

/// The language of an earlier message that was understood, else the first.
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

/// One kind of quote, apostrophe and space.
fn normal(text: &str) -> String {
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

/// A clause without courtesy.
fn trimmed<'t>(clause: &'t str, language: &Compiled) -> &'t str {
    let mut rest = clause.trim();
    while let Some(found) = language.lead.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[found.end()..].trim_start();
    }
    while let Some(found) = language.trail.find(rest).filter(|found| !found.is_empty()) {
        rest = rest[..found.start()].trim_end();
    }
    rest
}

fn rule<'t>(clause: &'t str, language: &Compiled) -> Option<(Act, Captures<'t>)> {
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

/// Cuts a message where a new request begins.
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

/// The steps of one clause; `None` when it points at something that is not there.
fn step(act: Act, captures: &Captures<'_>, conversation: &Conversation<'_>, language: &Compiled) -> Option<Vec<Step>> {
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
        // A bare "high" in a description is part of it; only the whole phrase is a priority.
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

fn unquoted(text: &str) -> &str {
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

/// The task meant by `words`; for a pointer the one task that was named last.
fn target(words: &str, conversation: &Conversation<'_>, language: &Compiled) -> Option<Target> {
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

/// The names in quotes of the assistant's last message.
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

/// The bare thing that was named before it was asked about.
fn spoken_of(conversation: &Conversation<'_>) -> Option<String> {
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

/// An answer to "which one do you mean": the request before it, with the task that was chosen.
fn chosen(message: &str, conversation: &Conversation<'_>, spoken: &'static Compiled) -> Option<Understood> {
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
