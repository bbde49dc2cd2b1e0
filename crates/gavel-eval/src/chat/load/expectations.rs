//! Reads expectations: decisions, calls, tasks, and their matchers.

use std::collections::BTreeMap;

use regex::RegexBuilder;
use serde_json::Value;

use super::reader::Reader;
use crate::chat::case::{DECISIONS, Expectation, ExpectedCall, ExpectedTask, ExpectedTasks, Forbidden};
use crate::chat::matcher::Matcher;
use crate::node::{Content, Node};

impl Reader<'_> {
    pub(super) fn expectation(&mut self, node: &Node, path: &str) -> Option<Expectation> {
        let known = [
            "decision",
            "outcome",
            "calls",
            "in_order",
            "forbidden",
            "response",
            "tasks",
        ];
        let fields = self.fields(node, path, &known);
        let at = |field: &str| format!("{path}.{field}");
        let decisions = DECISIONS.join(", ");
        let named = |name: &str| DECISIONS.into_iter().find(|decision| *decision == name);
        let decision = self.names(fields.get("decision"), &at("decision"), &decisions, named);
        if !fields.contains_key("decision") && matches!(node.content, Content::Map(_)) {
            self.missing(node, &at("decision"), &decisions);
        }
        let outcomes = self.outcomes;
        let outcome = self.names(fields.get("outcome"), &at("outcome"), &outcomes.join(", "), |name| {
            outcomes.contains(&name).then(|| name.to_owned())
        });
        let calls = fields
            .get("calls")
            .map(|node| self.calls(node, &at("calls")))
            .unwrap_or_default();
        let in_order = self.flag(fields.get("in_order").copied(), &at("in_order"), true);
        let forbidden = match fields.get("forbidden") {
            None => Forbidden::Tools(Vec::new()),
            Some(node) => match &node.content {
                Content::Text(text) if text == "effects" => Forbidden::Effects,
                Content::Text(text) if text == "all" => Forbidden::All,
                Content::List(_) => Forbidden::Tools(self.texts(node, &at("forbidden"))),
                _ => {
                    self.invalid(node, &at("forbidden"), "effects, all, or a list of tools");
                    Forbidden::All
                }
            },
        };
        let response = fields
            .get("response")
            .and_then(|node| self.matcher(node, &at("response")));
        let tasks = match fields.get("tasks") {
            None if matches!(forbidden, Forbidden::Effects | Forbidden::All) => ExpectedTasks::Unchanged,
            None => ExpectedTasks::Any,
            Some(node) if matches!(&node.content, Content::Text(text) if text == "unchanged") => {
                ExpectedTasks::Unchanged
            }
            Some(node) => ExpectedTasks::Exactly(self.expected_tasks(node, &at("tasks"))),
        };
        if decision.is_empty() {
            return None;
        }
        Some(Expectation {
            decision,
            outcome,
            calls,
            in_order,
            forbidden,
            response,
            tasks,
        })
    }

    fn names<T>(
        &mut self,
        node: Option<&&Node>,
        path: &str,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let mut values = Vec::new();
        for item in node.map(|node| Self::items(node)).unwrap_or_default() {
            match self.text(item, path).map(|text| read(&text)) {
                Some(Some(value)) => values.push(value),
                Some(None) => self.invalid(item, path, allowed),
                None => {}
            }
        }
        values
    }

    fn calls(&mut self, node: &Node, path: &str) -> Vec<ExpectedCall> {
        let mut calls = Vec::new();
        for item in Self::items(node) {
            if let Content::Text(tool) = &item.content {
                calls.push(ExpectedCall {
                    tool: tool.clone(),
                    arguments: BTreeMap::new(),
                });
                continue;
            }
            let fields = self.fields(item, path, &["tool", "arguments"]);
            let mut arguments = BTreeMap::new();
            match fields.get("arguments").map(|node| (node, &node.content)) {
                Some((_, Content::Map(entries))) => {
                    for (key, node) in entries {
                        if let Some(matcher) = self.matcher(node, &format!("{path}.arguments.{}", key.name)) {
                            arguments.insert(key.name.clone(), matcher);
                        }
                    }
                }
                Some((node, _)) => self.invalid(node, &format!("{path}.arguments"), "a map from argument to matcher"),
                None => {}
            }
            match fields.get("tool").and_then(|node| self.text(node, path)) {
                Some(tool) => calls.push(ExpectedCall { tool, arguments }),
                None => self.missing(item, &format!("{path}.tool"), "the name of a tool"),
            }
        }
        calls
    }

    fn expected_tasks(&mut self, node: &Node, path: &str) -> Vec<ExpectedTask> {
        let mut tasks = Vec::new();
        for item in Self::items(node) {
            if let Content::Text(text) = &item.content {
                let description = Matcher::Equals(Value::from(text.as_str()));
                tasks.push(ExpectedTask {
                    description,
                    due: None,
                    priority: None,
                    notes: None,
                    done: false,
                });
                continue;
            }
            let fields = self.fields(item, path, &["description", "due", "priority", "notes", "done"]);
            let mut matcher = |name: &str| {
                fields
                    .get(name)
                    .and_then(|node| self.matcher(node, &format!("{path}.{name}")))
            };
            let (description, due, priority, notes) = (
                matcher("description"),
                matcher("due"),
                matcher("priority"),
                matcher("notes"),
            );
            let done = self.flag(fields.get("done").copied(), &format!("{path}.done"), false);
            match description {
                Some(description) => tasks.push(ExpectedTask {
                    description,
                    due,
                    priority,
                    notes,
                    done,
                }),
                None => self.missing(item, &format!("{path}.description"), "a matcher"),
            }
        }
        tasks
    }

    fn matcher(&mut self, node: &Node, path: &str) -> Option<Matcher> {
        const KNOWN: [&str; 6] = ["equals", "contains", "contains_any", "lacks", "regex", "on"];
        match &node.content {
            Content::Text(text) if text == "absent" => return Some(Matcher::Absent),
            Content::Text(_) | Content::Integer(_) | Content::Float(_) | Content::Bool(_) => {
                return Some(Matcher::Equals(node.scalar()));
            }
            Content::Map(_) => {}
            Content::Null | Content::List(_) => {
                self.invalid(
                    node,
                    path,
                    &format!("a text, `absent`, or a map of {}", KNOWN.join(", ")),
                );
                return None;
            }
        }
        let fields = self.fields(node, path, &KNOWN);
        let mut conditions = Vec::new();
        for (name, node) in fields {
            let path = format!("{path}.{name}");
            let condition = match name {
                "equals" => Some(Matcher::Equals(node.scalar())),
                "contains" => Some(Matcher::Contains(self.texts(node, &path))),
                "contains_any" => Some(Matcher::ContainsAny(self.texts(node, &path))),
                "lacks" => Some(Matcher::Lacks(self.texts(node, &path))),
                "on" => self.day(node, &path).map(Matcher::On),
                "regex" => self.pattern(node, &path),
                _ => None,
            };
            conditions.extend(condition);
        }
        match conditions.len() {
            0 => None,
            1 => conditions.pop(),
            _ => Some(Matcher::All(conditions)),
        }
    }

    fn pattern(&mut self, node: &Node, path: &str) -> Option<Matcher> {
        let text = self.text(node, path)?;
        match RegexBuilder::new(&text).case_insensitive(true).build() {
            Ok(pattern) => Some(Matcher::Pattern(pattern)),
            Err(error) => {
                self.error(Some(node.line), path, &error.to_string(), "a regular expression");
                None
            }
        }
    }
}
