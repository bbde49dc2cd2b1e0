//! Reads cases: id, message and preconditions.

use super::reader::Reader;
use crate::chat::case::{Case, Kind, SeedTask, Turn};
use crate::node::{Content, Node};

struct Defaults<'a> {
    kind: Kind,
    language: Option<&'a str>,
    tasks: &'a [SeedTask],
}

impl Reader<'_> {
    pub(super) fn file(&mut self, root: &Node) -> Vec<Case> {
        let fields = self.fields(root, "the file", &["kind", "language", "tasks", "cases"]);
        let names = Kind::NAMES.map(|(name, _)| name).join(", ");
        let kind = match fields.get("kind") {
            Some(node) => {
                let text = self.text(node, "kind").unwrap_or_default();
                let kind = Kind::NAMES
                    .iter()
                    .find(|(name, _)| *name == text)
                    .map(|(_, kind)| *kind);
                if kind.is_none() {
                    self.invalid(node, "kind", &names);
                }
                kind
            }
            None => {
                self.error(None, "kind", "nothing", &names);
                None
            }
        };
        let language = fields.get("language").and_then(|node| self.text(node, "language"));
        let tasks = fields
            .get("tasks")
            .map(|node| self.seeds(node, "tasks"))
            .unwrap_or_default();
        let cases = match fields.get("cases").map(|node| &node.content) {
            Some(Content::List(items)) => items.as_slice(),
            _ => {
                self.error(Some(root.line), "cases", "nothing to read", "a list of cases");
                &[]
            }
        };
        let defaults = Defaults {
            kind: kind.unwrap_or(Kind::Clear),
            language: language.as_deref(),
            tasks: &tasks,
        };
        cases.iter().filter_map(|node| self.case(node, &defaults)).collect()
    }

    fn case(&mut self, node: &Node, defaults: &Defaults<'_>) -> Option<Case> {
        let known = ["id", "message", "language", "history", "tasks", "expect"];
        let fields = self.fields(node, "case", &known);
        for name in ["id", "message", "expect"] {
            if !fields.contains_key(name) && matches!(node.content, Content::Map(_)) {
                self.missing(node, name, "a case has an id, a message and what to expect");
            }
        }
        let id = fields.get("id").and_then(|node| self.text(node, "id"));
        let path = id.clone().unwrap_or_else(|| "case".to_owned());
        let at = |field: &str| format!("{path}.{field}");
        let message = fields.get("message").and_then(|node| self.text(node, &at("message")));
        let language = fields.get("language").and_then(|node| self.text(node, &at("language")));
        let history = fields
            .get("history")
            .map(|node| self.history(node, &at("history")))
            .unwrap_or_default();
        let tasks = fields.get("tasks").map(|node| self.seeds(node, &at("tasks")));
        let expect = fields
            .get("expect")
            .and_then(|node| self.expectation(node, &at("expect")));
        let kind = defaults.kind;
        let language = language
            .or_else(|| defaults.language.map(str::to_owned))
            .unwrap_or_else(|| "en".to_owned());
        let place = (self.file.to_owned(), node.line);
        let tasks = tasks.unwrap_or_else(|| defaults.tasks.to_vec());
        Some(Case {
            id: id?,
            place,
            kind,
            language,
            message: message?,
            history,
            tasks,
            expect: expect?,
        })
    }

    fn history(&mut self, node: &Node, path: &str) -> Vec<Turn> {
        let mut turns = Vec::new();
        for item in Self::items(node) {
            let fields = self.fields(item, path, &["role", "content"]);
            let mut text = |name: &str| fields.get(name).and_then(|node| self.text(node, path));
            let (given, content) = (text("role"), text("content"));
            let role = ["user", "assistant"]
                .into_iter()
                .find(|role| given.as_deref() == Some(role));
            match (role, content) {
                (Some(role), Some(text)) => turns.push(Turn { role, text }),
                (None, _) => {
                    let found = given.as_deref().unwrap_or("nothing");
                    self.error(Some(item.line), &format!("{path}.role"), found, "user, assistant");
                }
                (_, None) => self.missing(item, &format!("{path}.content"), "the text of the message"),
            }
        }
        turns
    }

    fn seeds(&mut self, node: &Node, path: &str) -> Vec<SeedTask> {
        let mut seeds = Vec::new();
        for item in Self::items(node) {
            if let Content::Text(description) = &item.content {
                seeds.push(SeedTask {
                    description: description.clone(),
                    ..SeedTask::default()
                });
                continue;
            }
            let fields = self.fields(item, path, &["description", "due", "priority", "notes", "done"]);
            let mut text = |name: &str| {
                fields
                    .get(name)
                    .and_then(|node| self.text(node, &format!("{path}.{name}")))
            };
            let (description, priority, notes) = (text("description"), text("priority"), text("notes"));
            let due = fields
                .get("due")
                .and_then(|node| self.day(node, &format!("{path}.due")));
            let done = self.flag(fields.get("done").copied(), &format!("{path}.done"), false);
            match description {
                Some(description) => seeds.push(SeedTask {
                    description,
                    due,
                    priority,
                    notes,
                    done,
                }),
                None => self.missing(item, &format!("{path}.description"), "the text of the task"),
            }
        }
        seeds
    }
}
