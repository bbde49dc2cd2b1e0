//! Parses the text of a policy file into a [`Policy`], or returns every error in it.

mod case;
mod fields;
mod names;
mod rule;

use std::sync::Arc;

use self::fields::Fields;
use super::{Case, Policy, Rule};
use crate::domain::address::MOST_RECIPIENTS;
use crate::domain::definition::{Content, DefinitionError, Node, quoted};
use crate::domain::repository::AllowedRepositories;

/// The longest policy file, in bytes.
const MOST_BYTES: usize = 1 << 20;
/// The most rules, and the most tests.
const MOST_ITEMS: usize = 1000;
/// The most values in the file, including field names: three times what the largest allowed number of rules and tests
/// needs.
const MOST_NODES: usize = 100_000;
/// The most errors that are listed.
const MOST_ERRORS: usize = 100;

const ROOT: [&str; 3] = ["max_recipients", "rules", "tests"];

pub(super) fn read(text: &str, file: &str) -> Result<Policy, Vec<DefinitionError>> {
    let mut reader = Reader {
        file,
        errors: Vec::new(),
        more: 0,
    };
    let policy = reader.policy(text);
    match policy {
        Some(policy) if reader.errors.is_empty() => Ok(policy),
        _ => {
            reader.errors.sort_by_key(|error| error.line);
            let more = reader.more;
            reader.errors.extend((more > 0).then(|| DefinitionError {
                file: file.to_owned(),
                line: None,
                field: "the policy".to_owned(),
                found: format!("{more} more errors"),
                allowed: format!("none; the first {MOST_ERRORS} are listed"),
            }));
            Err(reader.errors)
        }
    }
}

struct Reader<'a> {
    file: &'a str,
    errors: Vec<DefinitionError>,
    /// Errors that are not listed.
    more: usize,
}

impl Reader<'_> {
    fn invalid(&mut self, line: u64, field: &str, found: impl Into<String>, allowed: impl Into<String>) {
        if self.errors.len() == MOST_ERRORS {
            self.more += 1;
            return;
        }
        self.errors.push(DefinitionError {
            file: self.file.to_owned(),
            line: Some(line),
            field: field.to_owned(),
            found: found.into(),
            allowed: allowed.into(),
        });
    }

    fn policy(&mut self, text: &str) -> Option<Policy> {
        if text.len() > MOST_BYTES {
            let found = format!("{} bytes", text.len());
            self.invalid(1, "the policy", found, format!("at most {MOST_BYTES}"));
            return None;
        }
        let root = match Node::parse(text, MOST_NODES) {
            Ok(root) => root,
            Err(error) => {
                self.invalid(
                    error.line.unwrap_or(1),
                    "the policy",
                    error.message.replace('\n', " "),
                    "YAML",
                );
                return None;
            }
        };
        let empty = Node {
            line: 1,
            content: Content::Map(Vec::new()),
        };
        let root = if matches!(root.content, Content::Null) {
            &empty
        } else {
            &root
        };
        let fields = self.fields(root, "", &ROOT)?;
        let most_recipients = self.most_recipients(&fields);
        let mut rules: Vec<Rule> = Vec::new();
        for (n, node) in self.list(&fields, "rules").iter().enumerate() {
            if let Some(rule) = self.rule(node, &format!("rules[{n}]")) {
                if let Some(first) = rules.iter().find(|first| first.name == rule.name) {
                    let found = format!("{} a second time, after line {}", quoted(&rule.name), first.line);
                    self.invalid(rule.line, &format!("rules[{n}].name"), found, "each name once");
                }
                rules.push(rule);
            }
        }
        let mut tests: Vec<Case> = Vec::new();
        for (n, node) in self.list(&fields, "tests").iter().enumerate() {
            if let Some(case) = self.case(node, &format!("tests[{n}]")) {
                if let Some(first) = tests.iter().find(|first| first.name == case.name) {
                    let found = format!("{} a second time, after line {}", quoted(&case.name), first.line);
                    self.invalid(case.line, &format!("tests[{n}].name"), found, "each name once");
                }
                if let Some(name) = &case.rule
                    && self.errors.is_empty()
                    && !rules.iter().any(|rule| rule.name == *name)
                {
                    let names: Vec<_> = rules.iter().map(|rule| &*rule.name).collect();
                    let allowed = format!("the name of a rule: {}", names.join(", "));
                    self.invalid(case.line, &format!("tests[{n}].rule"), quoted(name), allowed);
                }
                tests.push(case);
            }
        }
        Some(Policy {
            rules,
            tests,
            most_recipients,
            file: Arc::from(self.file),
            repositories: AllowedRepositories::default(),
        })
    }

    fn most_recipients(&mut self, fields: &Fields<'_>) -> usize {
        let Some(node) = fields.get("max_recipients") else {
            return MOST_RECIPIENTS;
        };
        match node.content {
            Content::Integer(most @ 1..=10_000) => usize::try_from(most).unwrap_or(MOST_RECIPIENTS),
            _ => {
                self.invalid(
                    node.line,
                    "max_recipients",
                    node.found(),
                    "a whole number from 1 to 10000",
                );
                MOST_RECIPIENTS
            }
        }
    }
}

#[cfg(test)]
mod tests;
