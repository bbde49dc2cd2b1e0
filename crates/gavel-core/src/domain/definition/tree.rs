//! A definition that is written as text: the portable form, with its fields in reading order.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::Definition;
use super::fields::{INPUT, PROMPT, TABLE};

/// A value whose maps are ordered.
pub(super) enum Tree {
    /// A text, a number, true, false or null.
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// The definition without empty groups.
    pub(super) fn of(definition: &Definition) -> Self {
        let Value::Object(mut fields) = definition.to_json() else {
            unreachable!("a definition is an object")
        };
        if !definition.flow.steps().is_empty() {
            // A flow that calls no model itself has no tools.
            fields.remove("toolConfig");
        }
        fields.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
        let entries = fields
            .into_iter()
            .map(|(name, value)| {
                let tree = match value {
                    Value::Object(group) if name == INPUT => Self::map(group, &[], arguments),
                    Value::Object(group) => Self::map(group, &in_group(&name), Self::from),
                    Value::Array(items) => Self::List(items.into_iter().map(item).collect()),
                    scalar => Self::Scalar(scalar),
                };
                (name, tree)
            })
            .collect();
        Self::ordered(entries, &at_top())
    }

    /// Removes the system prompt, which the caller writes elsewhere.
    pub(super) fn drop_system_prompt(&mut self) {
        let Self::Map(entries) = self else { return };
        for (name, group) in entries {
            if let Self::Map(fields) = group
                && name == PROMPT
            {
                fields.retain(|(name, _)| name != "systemPrompt");
            }
        }
    }

    /// Indented JSON that ends with a line break.
    pub(super) fn to_json(&self) -> String {
        let text =
            serde_json::to_string_pretty(self).unwrap_or_else(|_| unreachable!("a tree of JSON values prints as JSON"));
        text + "\n"
    }

    fn map(fields: Map<String, Value>, order: &[&str], value: fn(Value) -> Self) -> Self {
        Self::ordered(
            fields.into_iter().map(|(name, one)| (name, value(one))).collect(),
            order,
        )
    }

    /// Names that are not in `order` come last, in their original order.
    fn ordered(mut entries: Vec<(String, Self)>, order: &[&str]) -> Self {
        entries.sort_by_key(|(name, _)| order.iter().position(|known| known == name).unwrap_or(order.len()));
        Self::Map(entries)
    }
}

/// Keeps the order, which for a map is alphabetical.
impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(fields) => Self::map(fields, &[], Self::from),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            scalar => Self::Scalar(scalar),
        }
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Scalar(value) => value.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

/// The content of `inputs`.
fn arguments(inputs: Value) -> Tree {
    match inputs {
        Value::Object(inputs) => Tree::map(inputs, &[], |argument| match argument {
            Value::Object(fields) => Tree::map(fields, &["description", "type", "required"], Tree::from),
            other => Tree::from(other),
        }),
        other => Tree::from(other),
    }
}

/// An item of a list in the definition: a name, a step or a sub-agent.
fn item(value: Value) -> Tree {
    match value {
        Value::Object(step) => Tree::map(step, &["name", "agent", "input", "timeout"], Tree::from),
        other => Tree::from(other),
    }
}

/// Names and groups of the top level, in the order of the table.
fn at_top() -> Vec<&'static str> {
    let names = TABLE.iter().filter_map(|row| match row.grouped {
        Some((group, _)) => Some(group),
        None => row.flat.first().copied(),
    });
    names.collect()
}

fn in_group(group: &str) -> Vec<&'static str> {
    let names = TABLE
        .iter()
        .filter_map(|row| row.grouped.filter(|(name, _)| *name == group));
    names.map(|(_, names)| names[0]).collect()
}
