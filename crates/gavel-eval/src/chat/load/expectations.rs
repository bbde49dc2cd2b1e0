//! Reads expectations: decisions, calls, tasks, and their matchers.

use std::collections::BTreeMap;

use gavel_reading::{At, Content, Entries, FLAG, Fields, OneOf, Parser, Scalar, Several, With};
use regex::RegexBuilder;
use serde_json::Value;

use crate::chat::case::{DECISIONS, Expectation, ExpectedCall, ExpectedTask, ExpectedTasks, Forbidden};
use crate::chat::day::{self, Day};
use crate::chat::matcher::Matcher;

/// A text; a number is its digits.
pub(super) const TEXT: Scalar<String> = Scalar {
    allowed: "text",
    read: |node| match &node.content {
        Content::Text(text) => Some(text.clone()),
        Content::Integer(number) => Some(number.to_string()),
        _ => None,
    },
};
pub(super) const DAY: Scalar<Day> = Scalar {
    allowed: day::ALLOWED,
    read: |node| match &node.content {
        Content::Text(text) => Day::parse(text),
        Content::Integer(days) => i16::try_from(*days).ok().map(Day::FromToday),
        _ => None,
    },
};

const MATCHER: &str = "a text, `absent`, or a map of equals, contains, contains_any, lacks, regex, on";

pub(super) fn expectation(fields: &Fields<'_>, outcomes: &[&str]) -> Option<Expectation> {
    let outcomes: Vec<_> = outcomes.iter().map(|name| (*name, (*name).to_owned())).collect();
    let decisions = DECISIONS.map(|decision| (decision, decision));
    let decision = fields.need("decision", Several(OneOf(&decisions)));
    let outcome = fields.take("outcome", Several(OneOf(&outcomes))).unwrap_or_default();
    let calls = fields.take("calls", Several(With("a tool, or a map of tool and arguments", call)));
    let in_order = fields.take("in_order", FLAG).unwrap_or(true);
    let forbidden = match fields.get("forbidden") {
        None => Forbidden::Tools(Vec::new()),
        Some(at) => match &at.node.content {
            Content::Text(text) if text == "effects" => Forbidden::Effects,
            Content::Text(text) if text == "all" => Forbidden::All,
            Content::List(_) => Forbidden::Tools(Several(TEXT).parse(&at)?),
            _ => {
                at.invalid("effects, all, or a list of tools");
                Forbidden::All
            }
        },
    };
    let response = fields.take("response", With(MATCHER, matcher));
    let tasks = match fields.get("tasks") {
        None if matches!(forbidden, Forbidden::Effects | Forbidden::All) => ExpectedTasks::Unchanged,
        None => ExpectedTasks::Any,
        Some(at) if at.node.text() == Some("unchanged") => ExpectedTasks::Unchanged,
        Some(at) => ExpectedTasks::Exactly(Several(With("a task", expected_task)).parse(&at)?),
    };
    Some(Expectation {
        decision: decision.filter(|decision| !decision.is_empty())?,
        outcome,
        calls: calls.unwrap_or_default(),
        in_order,
        forbidden,
        response,
        tasks,
    })
}

/// A tool, or a map of tool and arguments.
fn call(at: &At<'_>) -> Option<ExpectedCall> {
    if let Some(tool) = at.node.text() {
        return Some(ExpectedCall {
            tool: tool.to_owned(),
            arguments: BTreeMap::new(),
        });
    }
    at.record(|fields| {
        let tool = fields.need("tool", TEXT);
        let arguments = fields.take("arguments", Entries(With(MATCHER, matcher)));
        Some(ExpectedCall {
            tool: tool?,
            arguments: arguments.unwrap_or_default().into_iter().collect(),
        })
    })
}

/// A task: its description, or a map of matchers.
fn expected_task(at: &At<'_>) -> Option<ExpectedTask> {
    if let Some(text) = at.node.text() {
        return Some(ExpectedTask {
            description: Matcher::Equals(Value::from(text)),
            due: None,
            priority: None,
            notes: None,
            done: false,
        });
    }
    at.record(|fields| {
        let description = fields.need("description", With(MATCHER, matcher));
        let taken = |name| fields.take(name, With(MATCHER, matcher));
        let (due, priority, notes) = (taken("due"), taken("priority"), taken("notes"));
        let done = fields.take("done", FLAG).unwrap_or(false);
        Some(ExpectedTask {
            description: description?,
            due,
            priority,
            notes,
            done,
        })
    })
}

fn matcher(at: &At<'_>) -> Option<Matcher> {
    match &at.node.content {
        Content::Text(text) if text == "absent" => return Some(Matcher::Absent),
        Content::Text(_) | Content::Integer(_) | Content::Float(_) | Content::Bool(_) => {
            return Some(Matcher::Equals(at.node.to_json()));
        }
        Content::Map(entries) if !entries.is_empty() => {}
        Content::Null | Content::List(_) | Content::Map(_) => {
            at.invalid(MATCHER);
            return None;
        }
    }
    let mut conditions = at.record(|fields| {
        let given = [
            fields.get("equals").map(|at| Matcher::Equals(at.node.to_json())),
            fields.take("contains", Several(TEXT)).map(Matcher::Contains),
            fields.take("contains_any", Several(TEXT)).map(Matcher::ContainsAny),
            fields.take("lacks", Several(TEXT)).map(Matcher::Lacks),
            fields.take("on", DAY).map(Matcher::On),
            fields.take("regex", With("a regular expression", pattern)),
        ];
        Some(given.into_iter().flatten().collect::<Vec<_>>())
    })?;
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Matcher::All(conditions)),
    }
}

fn pattern(at: &At<'_>) -> Option<Matcher> {
    let text = TEXT.parse(at)?;
    let pattern = RegexBuilder::new(&text).case_insensitive(true).build();
    let pattern = pattern.map_err(|error| at.error(error.to_string(), "a regular expression"));
    pattern.ok().map(Matcher::Pattern)
}
