//! Parses the text of a policy file into a [`Policy`], or returns every error in it.

mod case;
mod names;
mod rule;

use std::cell::RefCell;
use std::sync::Arc;

use gavel_reading::{At, Content, Fields, Node, ReadError, Scalar, WORDS, Whole, quoted};

use super::{Case, Policy, Rule};
use crate::domain::address::MOST_RECIPIENTS;
use crate::domain::repository::AllowedRepositories;

/// The longest policy file, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// The most rules, and the most tests.
const MOST_ITEMS: usize = 1000;
/// The most values in the file, including field names: three times what the largest allowed number of rules and tests
/// needs.
const MOST_NODES: usize = 100_000;

/// The name of a rule or of a test.
const NAME: Scalar<String> = Scalar {
    allowed: "a unique name, up to 100 characters on one line",
    read: |node| {
        let fits = |name: &String| name.chars().count() <= 100 && !name.chars().any(char::is_control);
        (WORDS.read)(node).filter(fits)
    },
};

pub(super) fn read(text: &str, file: &str) -> Result<Policy, Vec<ReadError>> {
    let errors = RefCell::default();
    let mut root = Node {
        line: 1,
        content: Content::Map(Vec::new()),
    };
    let whole = At::root(&errors, file, &root);
    let parsed = if text.len() > MOST_BYTES {
        whole.error(format!("{} bytes", text.len()), format!("at most {MOST_BYTES}"));
        None
    } else {
        let parsed = Node::parse(text, MOST_NODES);
        let fail = |error: gavel_reading::SyntaxError| {
            let line = error.line.unwrap_or(1);
            let node = Node { line, ..root.clone() };
            whole.holding(&node).error(error.message.replace('\n', " "), "YAML");
        };
        parsed.map_err(fail).ok()
    };
    let policy = parsed.and_then(|parsed| {
        // An empty file has no rules.
        if !parsed.is_null() {
            root = parsed;
        }
        At::root(&errors, file, &root).record(|fields| policy(fields, file))
    });
    let errors = errors.into_inner();
    match policy {
        Some(policy) if errors.is_empty() => Ok(policy),
        _ => Err(errors.into_vec(file)),
    }
}

fn policy(fields: &Fields<'_>, file: &str) -> Option<Policy> {
    let most_recipients = fields.take("max_recipients", Whole(1..=10_000));
    let mut rules: Vec<Rule> = Vec::new();
    for at in items(fields, "rules") {
        if let Some(rule) = at.record(rule::rule) {
            if let Some(first) = rules.iter().find(|first| first.name == rule.name) {
                twice(&at, &rule.name, first.line);
            }
            rules.push(rule);
        }
    }
    let mut tests: Vec<Case> = Vec::new();
    for at in items(fields, "tests") {
        if let Some(case) = at.record(case::case) {
            if let Some(first) = tests.iter().find(|first| first.name == case.name) {
                twice(&at, &case.name, first.line);
            }
            let rule = case
                .rule
                .as_ref()
                .filter(|name| !rules.iter().any(|rule| rule.name == **name));
            if let Some(name) = rule {
                let names: Vec<_> = rules.iter().map(|rule| &*rule.name).collect();
                let path = format!("{}.rule", at.path);
                at.clone()
                    .named(path)
                    .error(quoted(name), format!("the name of a rule: {}", names.join(", ")));
            }
            tests.push(case);
        }
    }
    Some(Policy {
        rules,
        tests,
        most_recipients: most_recipients.unwrap_or(MOST_RECIPIENTS),
        file: Arc::from(file),
        repositories: AllowedRepositories::default(),
    })
}

fn items<'a>(fields: &Fields<'a>, name: &'static str) -> Vec<At<'a>> {
    fields.get(name).and_then(|at| at.items(MOST_ITEMS)).unwrap_or_default()
}

fn twice(at: &At<'_>, name: &str, first: u64) {
    let found = format!("{} a second time, after line {first}", quoted(name));
    at.clone()
        .named(format!("{}.name", at.path))
        .error(found, "each name once");
}

#[cfg(test)]
mod tests;
