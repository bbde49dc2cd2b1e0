//! The canonical form of a definition, and its content hash.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::fields::{PROMPT, TABLE};
use super::values::Held;
use super::{Definition, Input, Step, SubAgent};
use crate::domain::canonical;

/// Hex SHA-256 of the canonical JSON text of the portable form.
pub(super) fn hash(definition: &Definition) -> Arc<str> {
    canonical::hash(canonical::to_raw(&definition.to_json()).get())
}

/// Bytes of the portable form as JSON, which is how definitions are stored.
pub(super) fn length(definition: &Definition) -> usize {
    definition.to_json().to_string().len()
}

/// A protobuf float as people write it: 0.1, not 0.10000000149011612.
pub(super) fn shortest(value: f32) -> f64 {
    value
        .to_string()
        .parse()
        .unwrap_or_else(|_| unreachable!("a finite float prints as a number"))
}

/// A value whose maps are ordered.
pub(super) enum Tree {
    /// A text, a number, true, false or null.
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    /// The definition in the order of the table, without absent fields and empty groups.
    pub(super) fn new(definition: &Definition) -> Self {
        let mut entries: Vec<(String, Self)> = Vec::new();
        for row in TABLE {
            let Some(value) = (row.write)(definition) else { continue };
            let name = row.field.name().to_owned();
            let Some((group, _)) = row.grouped else {
                entries.push((name, value));
                continue;
            };
            match entries.iter_mut().find(|(given, _)| given == group) {
                Some((_, Self::Map(fields))) => fields.push((name, value)),
                _ => entries.push((group.to_owned(), Self::Map(vec![(name, value)]))),
            }
        }
        Self::Map(entries)
    }

    /// An optional field, if it is present.
    pub(super) fn optional(value: &Option<impl Held>) -> Option<Self> {
        value.as_ref().map(|value| Self::Scalar(value.to_json()))
    }

    /// A list, unless it is empty.
    pub(super) fn some<'a, T: 'a>(items: &'a [T]) -> Option<Self>
    where
        Self: From<&'a T>,
    {
        (!items.is_empty()).then(|| Self::List(items.iter().map(Self::from).collect()))
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
}

impl From<Tree> for Value {
    fn from(tree: Tree) -> Self {
        match tree {
            Tree::Scalar(value) => value,
            Tree::List(items) => items.into_iter().map(Self::from).collect(),
            Tree::Map(entries) => entries
                .into_iter()
                .map(|(name, tree)| (name, Self::from(tree)))
                .collect(),
        }
    }
}

/// Keeps the order, which for a map is alphabetical.
impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(fields) => Self::Map(fields.into_iter().map(|(name, one)| (name, one.into())).collect()),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            scalar => Self::Scalar(scalar),
        }
    }
}

impl From<&str> for Tree {
    fn from(text: &str) -> Self {
        Self::Scalar(text.into())
    }
}

impl From<&String> for Tree {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<u64> for Tree {
    fn from(number: u64) -> Self {
        Self::Scalar(number.into())
    }
}

/// The present ones of these fields, in this order.
fn map<const N: usize>(fields: [(&str, Option<Tree>); N]) -> Tree {
    let present = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Tree::Map(present.collect())
}

impl From<&Input> for Tree {
    fn from(input: &Input) -> Self {
        map([
            ("description", Some((&input.description).into())),
            ("type", Some(input.kind.as_str().into())),
            ("required", Some(Self::Scalar(input.required.into()))),
        ])
    }
}

/// The shortest notation.
impl From<&SubAgent> for Tree {
    fn from(SubAgent { agent, timeout }: &SubAgent) -> Self {
        match timeout {
            None => agent.into(),
            Some(timeout) => map([
                ("agent", Some(agent.into())),
                ("timeout", Some(timeout.as_secs().into())),
            ]),
        }
    }
}

/// The shortest notation.
impl From<&Step> for Tree {
    fn from(
        Step {
            name,
            agent,
            input,
            timeout,
        }: &Step,
    ) -> Self {
        if name == agent && input.is_empty() && timeout.is_none() {
            return agent.into();
        }
        let templates = || input.iter().map(|(name, template)| (name.clone(), template.into()));
        map([
            ("name", (name != agent).then(|| name.into())),
            ("agent", Some(agent.into())),
            ("input", (!input.is_empty()).then(|| Self::Map(templates().collect()))),
            ("timeout", timeout.map(|timeout| timeout.as_secs().into())),
        ])
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
