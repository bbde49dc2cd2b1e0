//! Reads nodes and collects every error.

use std::collections::BTreeMap;

use super::CaseError;
use crate::chat::day::{self, Day};
use crate::node::{Content, Key, Node, unknown_name_message};

/// Reads the nodes of one file.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    /// The outcomes of gavel.
    pub(super) outcomes: &'a [&'a str],
    pub(super) errors: Vec<CaseError>,
}

/// The fields of a map, by name.
pub(super) type Fields<'n> = BTreeMap<&'n str, &'n Node>;

impl Reader<'_> {
    pub(super) fn error(&mut self, line: Option<u64>, field: &str, found: &str, allowed: &str) {
        self.errors.push(CaseError {
            file: self.file.to_owned(),
            line,
            field: field.to_owned(),
            found: found.to_owned(),
            allowed: allowed.to_owned(),
        });
    }

    /// Something that `node` must have is not there.
    pub(super) fn missing(&mut self, node: &Node, path: &str, allowed: &str) {
        self.error(Some(node.line), path, "nothing", allowed);
    }

    pub(super) fn invalid(&mut self, node: &Node, path: &str, allowed: &str) {
        self.error(Some(node.line), path, &node.found(), allowed);
    }

    /// The fields of a map; a field that is not `known` is an error.
    pub(super) fn fields<'n>(&mut self, node: &'n Node, path: &str, known: &[&str]) -> Fields<'n> {
        let Content::Map(entries) = &node.content else {
            self.invalid(node, path, &format!("a map of {}", known.join(", ")));
            return Fields::new();
        };
        for (Key { line, name }, _) in entries {
            if !known.contains(&name.as_str()) {
                let allowed = unknown_name_message(name, known);
                self.error(Some(*line), &format!("{path}.{name}"), "an unknown field", &allowed);
            }
        }
        entries.iter().map(|(key, node)| (key.name.as_str(), node)).collect()
    }

    pub(super) fn text(&mut self, node: &Node, path: &str) -> Option<String> {
        match &node.content {
            Content::Text(text) => Some(text.clone()),
            Content::Integer(number) => Some(number.to_string()),
            _ => {
                self.invalid(node, path, "text");
                None
            }
        }
    }

    /// A list, or a single item as a list of one.
    pub(super) fn items(node: &Node) -> Vec<&Node> {
        match &node.content {
            Content::List(items) => items.iter().collect(),
            Content::Null => Vec::new(),
            _ => vec![node],
        }
    }

    pub(super) fn texts(&mut self, node: &Node, path: &str) -> Vec<String> {
        Self::items(node)
            .into_iter()
            .filter_map(|item| self.text(item, path))
            .collect()
    }

    pub(super) fn flag(&mut self, node: Option<&Node>, path: &str, absent: bool) -> bool {
        match node.map(|node| (node, &node.content)) {
            None => absent,
            Some((_, Content::Bool(flag))) => *flag,
            Some((node, _)) => {
                self.invalid(node, path, "true or false");
                absent
            }
        }
    }

    pub(super) fn day(&mut self, node: &Node, path: &str) -> Option<Day> {
        let day = match &node.content {
            Content::Text(text) => Day::parse(text),
            Content::Integer(days) => i16::try_from(*days).ok().map(Day::FromToday),
            _ => None,
        };
        if day.is_none() {
            self.invalid(node, path, day::ALLOWED);
        }
        day
    }
}
