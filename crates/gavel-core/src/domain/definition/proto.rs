//! The protobuf form: `proto/gemini/agent/v1/agent.proto`.
//!
//! The generated message converts to and from JSON by serde (`tests/definition/protobuf.rs` sets the attributes). Its JSON
//! has the names of the `.proto` file, which the reader accepts, so that no field is named here.

use prost::Message;
use serde::{Deserialize, Deserializer, Serializer};
use serde_json::{Map, Value, json};

use gavel_reading::{Content, Node};

use super::canonical::shortest;
use super::flow::FlowType;
use super::{Approval, Definition, Provider};
use crate::domain::canonical as json_text;

/// Generated from the `.proto` file; `tests/definition/protobuf.rs` keeps it current.
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod message;

use message::AgentDefinition;

/// Parses a message into the same tree as the other forms. It has no lines.
pub(super) fn parse(bytes: &[u8]) -> Result<Node, String> {
    let read = AgentDefinition::decode(bytes).map_err(|error| format!("bytes that are not this message ({error})"))?;
    // prost drops unknown fields, and then the parsed message is shorter than the bytes.
    if read.encoded_len() != bytes.len() {
        let (known, given) = (read.encoded_len(), bytes.len());
        return Err(format!(
            "fields that this version does not know, or a duplicate field ({known} of {given} bytes are understood)"
        ));
    }
    let json = serde_json::to_value(&read).unwrap_or_else(|error| unreachable!("every message is JSON: {error}"));
    let mut node = Node::from(&json);
    drop_absent(&mut node);
    Ok(node)
}

/// Removes what proto3 cannot tell from absent: empty texts and lists. The templates of a step are text in any case.
fn drop_absent(node: &mut Node) {
    match &mut node.content {
        Content::Map(entries) => {
            entries.retain_mut(|(key, node)| {
                if key.name != "input" {
                    drop_absent(node);
                }
                match &node.content {
                    Content::Null => false,
                    Content::Text(text) => !text.is_empty(),
                    Content::List(items) => !items.is_empty(),
                    _ => true,
                }
            });
        }
        Content::List(items) => items.iter_mut().for_each(drop_absent),
        _ => {}
    }
}

/// Writes the message.
pub(super) fn write(definition: &Definition) -> Vec<u8> {
    let Value::Object(fields) = definition.to_json() else {
        unreachable!("a definition is an object")
    };
    let mut json = snake_case(fields);
    for group in json.values_mut() {
        match group {
            Value::Object(fields) => *fields = snake_case(std::mem::take(fields)),
            // The shortest notation of steps and sub-agents is a name.
            Value::Array(items) => {
                let names = items.iter_mut().filter(|item| item.is_string());
                names.for_each(|name| *name = json!({ "agent": name.take() }));
            }
            _ => {}
        }
    }
    if let Some(schema) = json
        .get_mut("output_config")
        .and_then(|output| output.get_mut("schema"))
        && !schema.is_string()
    {
        *schema = json_text::to_raw(schema).get().into();
    }
    let message = AgentDefinition::deserialize(Value::Object(json));
    message
        .unwrap_or_else(|error| unreachable!("a definition is a message: {error}"))
        .encode_to_vec()
}

fn snake_case(fields: Map<String, Value>) -> Map<String, Value> {
    let name = |name: &str| {
        let word = |c: char| {
            if c.is_ascii_uppercase() {
                format!("_{}", c.to_ascii_lowercase())
            } else {
                c.to_string()
            }
        };
        name.chars().map(word).collect()
    };
    fields.into_iter().map(|(key, value)| (name(&key), value)).collect()
}

/// A number as people write it: 0.1, not 0.10000000149011612. What is no number is a text, which the reader rejects.
fn number<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) if value.is_finite() => serializer.serialize_f64(shortest(*value)),
        Some(value) => serializer.serialize_str(&value.to_string()),
        None => serializer.serialize_none(),
    }
}

/// An enum by the names of its numbers from 1. An unknown number remains a number, which the reader rejects; 0 is absent.
macro_rules! choice {
    ($name:ident, $names:expr) => {
        mod $name {
            use super::*;

            pub(super) fn serialize<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
                let at = usize::try_from(*number).unwrap_or(usize::MAX);
                match at.checked_sub(1) {
                    None => serializer.serialize_none(),
                    Some(at) => match $names.get(at) {
                        Some(name) => serializer.serialize_str(name),
                        None => serializer.serialize_i32(*number),
                    },
                }
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
                let name = String::deserialize(deserializer)?;
                let at = $names.iter().position(|known| *known == name);
                Ok(at.and_then(|at| i32::try_from(at + 1).ok()).unwrap_or_default())
            }
        }
    };
}

choice!(approval, Approval::WORDS);
choice!(flow_type, FlowType::WORDS);
choice!(provider, Provider::WORDS);
