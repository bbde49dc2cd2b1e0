//! Reads cases: id, message and preconditions.

use gavel_reading::{At, FLAG, Fields, OneOf, Record, Several, With};

use super::expectations::{DAY, TEXT, expectation};
use crate::chat::case::{Case, Kind, SeedTask, Turn};

/// The most cases of a file.
const MOST_CASES: usize = 10_000;

struct Defaults<'a> {
    file: &'a str,
    outcomes: &'a [&'a str],
    kind: Kind,
    language: Option<String>,
    tasks: Vec<SeedTask>,
}

pub(super) fn file(fields: &Fields<'_>, file: &str, outcomes: &[&str]) -> Option<Vec<Case>> {
    let defaults = Defaults {
        file,
        outcomes,
        kind: fields.need("kind", OneOf(&Kind::NAMES)).unwrap_or(Kind::Clear),
        language: fields.take("language", TEXT),
        tasks: fields.take("tasks", Several(With("a task", seed))).unwrap_or_default(),
    };
    let cases = fields.get("cases");
    if cases.is_none() {
        fields.missing("cases", "a list of cases");
    }
    let cases = cases?.items(MOST_CASES)?;
    let cases = cases
        .iter()
        .filter_map(|at| at.record(|fields| case(fields, &defaults)));
    Some(cases.collect())
}

fn case(fields: &Fields<'_>, defaults: &Defaults<'_>) -> Option<Case> {
    let id = fields.need("id", TEXT);
    let message = fields.need("message", TEXT);
    let language = fields.take("language", TEXT).or_else(|| defaults.language.clone());
    let history = fields.take("history", Several(Record("a map of role and content", turn)));
    let tasks = fields.take("tasks", Several(With("a task", seed)));
    let expect = Record("a map of what to expect", |fields: &Fields<'_>| {
        expectation(fields, defaults.outcomes)
    });
    let expect = fields.need("expect", expect);
    Some(Case {
        id: id?,
        place: (defaults.file.to_owned(), fields.at.node.line),
        kind: defaults.kind,
        language: language.unwrap_or_else(|| "en".to_owned()),
        message: message?,
        history: history.unwrap_or_default(),
        tasks: tasks.unwrap_or_else(|| defaults.tasks.clone()),
        expect: expect?,
    })
}

fn turn(fields: &Fields<'_>) -> Option<Turn> {
    let role = fields.need("role", OneOf(&[("user", "user"), ("assistant", "assistant")]));
    let text = fields.need("content", TEXT);
    Some(Turn {
        role: role?,
        text: text?,
    })
}

/// A task of the user before: its description, or a map.
fn seed(at: &At<'_>) -> Option<SeedTask> {
    if let Some(description) = at.node.text() {
        let description = description.to_owned();
        return Some(SeedTask {
            description,
            ..SeedTask::default()
        });
    }
    at.record(|fields| {
        let description = fields.need("description", TEXT);
        let (due, priority, notes) = (
            fields.take("due", DAY),
            fields.take("priority", TEXT),
            fields.take("notes", TEXT),
        );
        let done = fields.take("done", FLAG).unwrap_or(false);
        Some(SeedTask {
            description: description?,
            due,
            priority,
            notes,
            done,
        })
    })
}
