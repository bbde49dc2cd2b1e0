//! The canonical form of a definition, and its content hash.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::fields::{INPUT, PROMPT, TABLE};
use super::{Definition, Flow, OutputSchema, Step, SubAgent};
use crate::domain::canonical;

/// Hex SHA-256 of the canonical JSON text of the portable form.
pub(super) fn hash(definition: &Definition) -> Arc<str> {
    let text = canonical::to_raw(&to_json(definition));
    hex::encode(Sha256::digest(text.get())).into()
}

/// Bytes of the portable form as JSON, which is how definitions are stored.
pub(super) fn length(definition: &Definition) -> usize {
    to_json(definition).to_string().len()
}

pub(super) fn to_json(definition: &Definition) -> Value {
    let inputs: Map<_, _> = definition
        .inputs
        .iter()
        .map(|(name, input)| {
            (
                name.clone(),
                json!({"description": input.description, "type": input.kind.as_str(), "required": input.required}),
            )
        })
        .collect();
    let output = definition.output.as_ref().map(|output| {
        let schema = match &output.schema {
            OutputSchema::Named(name) => Value::from(name.as_str()),
            OutputSchema::Inline(schema) => schema.clone(),
        };
        json!({"outputName": output.name, "description": output.description, "schema": schema})
    });
    let steps = definition.flow.steps();
    let max_iterations = match &definition.flow {
        Flow::Loop { max_iterations, .. } => Some(max_iterations),
        Flow::Single | Flow::Sequential { .. } => None,
    };
    let prompt = definition.prompt.as_ref();
    let prompt = prompt.map(|prompt| json!({"query": prompt.query, "systemPrompt": prompt.system_prompt}));
    let mut model: Map<_, _> = definition.model.to_json().collect();
    if let Some(provider) = definition.provider {
        model.insert("provider".to_owned(), provider.as_str().into());
    }
    let seconds = definition.limits.max_time.map(|time| time.as_secs());
    let minutes = seconds.filter(|seconds| seconds % 60 == 0).map(|seconds| seconds / 60);
    without_nulls(json!({
        "name": definition.name,
        "displayName": definition.display_name,
        "description": definition.description,
        "inputConfig": {"inputs": inputs},
        "outputConfig": output,
        "processOutput": definition.process_output,
        "promptConfig": prompt,
        "modelConfig": model,
        "toolConfig": {"tools": definition.tools},
        "runConfig": {
            "max_turns": definition.limits.max_turns,
            "max_tokens": definition.limits.max_tokens,
            "max_time_minutes": minutes,
            "deadline_seconds": seconds.filter(|_| minutes.is_none()),
        },
        // Has no effect if the flow calls no model itself, and is not included then.
        "approval": steps.is_empty().then_some(definition.approval.as_str()),
        // Default values are omitted, so that a definition without them keeps its earlier hash.
        "flow_type": (definition.flow != Flow::Single).then_some(definition.flow.as_str()),
        "steps": (!steps.is_empty()).then(|| steps.iter().map(step).collect::<Value>()),
        "max_iterations": max_iterations,
        "sub_agents": (!definition.sub_agents.is_empty())
            .then(|| definition.sub_agents.iter().map(sub_agent).collect::<Value>()),
    }))
}

/// The shortest notation.
fn sub_agent(sub_agent: &SubAgent) -> Value {
    match sub_agent.timeout {
        None => Value::from(sub_agent.agent.as_str()),
        Some(timeout) => json!({"agent": sub_agent.agent, "timeout": timeout.as_secs()}),
    }
}

/// The shortest notation.
fn step(step: &Step) -> Value {
    if step.name == step.agent && step.input.is_empty() && step.timeout.is_none() {
        return Value::from(step.agent.as_str());
    }
    let mut fields = Map::new();
    if step.name != step.agent {
        fields.insert("name".to_owned(), Value::from(step.name.as_str()));
    }
    fields.insert("agent".to_owned(), Value::from(step.agent.as_str()));
    if !step.input.is_empty() {
        fields.insert("input".to_owned(), json!(step.input));
    }
    if let Some(timeout) = step.timeout {
        fields.insert("timeout".to_owned(), Value::from(timeout.as_secs()));
    }
    Value::Object(fields)
}

/// A protobuf float as people write it: 0.1, not 0.10000000149011612.
pub(super) fn shortest(value: f32) -> f64 {
    value
        .to_string()
        .parse()
        .unwrap_or_else(|_| unreachable!("a finite float prints as a number"))
}

/// Removes absent fields on the definition's own two levels; a schema inside keeps its nulls.
fn without_nulls(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let keep = |fields: Map<String, Value>| fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        keep(fields)
            .map(|(name, value)| match value {
                Value::Object(group) => (name, Value::Object(keep(group).collect())),
                other => (name, other),
            })
            .collect(),
    )
}

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
