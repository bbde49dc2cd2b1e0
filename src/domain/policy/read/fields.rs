//! The fields of one map, each with its position in the file.

use super::super::Effect;
use super::{MOST_ITEMS, Reader};
use crate::domain::definition::nearest::nearest;
use crate::domain::definition::{Content, DefinitionError, Key, Node, quoted};

/// A map with known keys.
pub(super) struct Fields<'a> {
    path: String,
    line: u64,
    entries: &'a [(Key, Node)],
}

impl<'a> Fields<'a> {
    /// The value of a key; `null` counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        let found = self.entries.iter().find(|(key, _)| key.name == name);
        found
            .map(|(_, node)| node)
            .filter(|node| !matches!(node.content, Content::Null))
    }

    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}

impl Reader<'_> {
    pub(super) fn fields<'n>(&mut self, node: &'n Node, path: &str, known: &[&str]) -> Option<Fields<'n>> {
        let Content::Map(entries) = &node.content else {
            let field = if path.is_empty() { "the policy" } else { path };
            self.invalid(
                node.line,
                field,
                node.found(),
                format!("a map with {}", known.join(", ")),
            );
            return None;
        };
        let fields = Fields {
            path: path.to_owned(),
            line: node.line,
            entries,
        };
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
            let allowed = match nearest(&key.name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => known.join(", "),
            };
            self.invalid(key.line, &fields.at(&key.name), "an unknown key", allowed);
        }
        Some(fields)
    }

    pub(super) fn list<'n>(&mut self, fields: &Fields<'n>, name: &str) -> &'n [Node] {
        match fields.get(name) {
            None => &[],
            Some(node) => match &node.content {
                Content::List(items) if items.len() <= MOST_ITEMS => items,
                Content::List(items) => {
                    let found = format!("{} of them", items.len());
                    self.invalid(node.line, &fields.at(name), found, format!("at most {MOST_ITEMS}"));
                    &[]
                }
                _ => {
                    self.invalid(node.line, &fields.at(name), node.found(), "a list");
                    &[]
                }
            },
        }
    }

    pub(super) fn name(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let text = self.needed_text(fields, name, "a unique name")?;
        if text.chars().count() > 100 || text.chars().any(char::is_control) {
            self.invalid(
                fields.line,
                &fields.at(name),
                quoted(&text),
                "up to 100 characters on one line",
            );
            return None;
        }
        Some(text)
    }

    pub(super) fn needed_text(&mut self, fields: &Fields<'_>, name: &str, allowed: &str) -> Option<String> {
        if fields.get(name).is_none() {
            self.missing(fields, name, allowed);
            return None;
        }
        self.text(fields, name)
    }

    /// A misspelled key already has an error.
    pub(super) fn missing(&mut self, fields: &Fields<'_>, name: &str, allowed: &str) {
        let prefix = format!("{}.", fields.path);
        let meant = format!("did you mean `{name}`?");
        let misspelled = |error: &DefinitionError| error.allowed == meant && error.field.starts_with(&prefix);
        if !self.errors.iter().any(misspelled) {
            self.invalid(fields.line, &fields.at(name), "nothing", allowed);
        }
    }

    pub(super) fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let node = fields.get(name)?;
        match &node.content {
            Content::Text(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            _ => {
                self.invalid(node.line, &fields.at(name), node.found(), "text that is not blank");
                None
            }
        }
    }

    pub(super) fn effect(&mut self, fields: &Fields<'_>, name: &str) -> Option<Effect> {
        let Some(node) = fields.get(name) else {
            self.missing(fields, name, &choices(&Effect::NAMES));
            return None;
        };
        self.choice(node, &fields.at(name), &Effect::NAMES)
    }

    pub(super) fn choice<T: Copy>(&mut self, node: &Node, path: &str, names: &[(&str, T)]) -> Option<T> {
        let found = match &node.content {
            Content::Text(text) => names.iter().find(|(name, _)| name == text),
            _ => None,
        };
        if found.is_none() {
            self.invalid(node.line, path, node.found(), choices(names));
        }
        found.map(|(_, value)| *value)
    }
}

fn choices<T>(names: &[(&str, T)]) -> String {
    let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}
