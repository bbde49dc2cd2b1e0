//! Pieces of a tool's description.
//!
//! Input schemas keep to what every model provider takes: an object at the root, no references, no
//! combinators, no `const`. Rules beyond that ("exactly one of") stand in descriptions and are
//! enforced by the server.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// How a tool behaves, as its annotations say.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour {
    /// It changes nothing.
    pub read_only: bool,
    /// What it does cannot be taken back.
    pub destructive: bool,
    /// A second equal call changes nothing more.
    pub idempotent: bool,
    /// It reaches beyond what the server keeps itself.
    pub open_world: bool,
}

/// A tool. One that is not read-only honours the idempotency key of a call, and says so.
pub fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    input: Value,
    output: Value,
    behaviour: Behaviour,
) -> Tool {
    let annotations = ToolAnnotations::with_title(title)
        .read_only(behaviour.read_only)
        .destructive(behaviour.destructive)
        .idempotent(behaviour.idempotent)
        .open_world(behaviour.open_world);
    let tool = Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(annotations);
    if behaviour.read_only {
        return tool;
    }
    let mut meta = MetaObject::new();
    meta.insert("gavel/idempotency".to_owned(), "key".into());
    tool.with_meta(meta)
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => Arc::default(),
    }
}

/// What a tool takes: these arguments and no others.
pub fn input(properties: Value, required: &[&str]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.to_vec().into());
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    Value::Object(schema)
}

/// What a tool answers: the result or an error; clients check both against this schema.
pub fn output(mut properties: Map<String, Value>, required: &[&str]) -> Value {
    properties.insert("error".to_owned(), error());
    json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
        "additionalProperties": false
    })
}

/// Properties by name.
pub fn properties(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    entries
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

fn error() -> Value {
    json!({
        "type": "object",
        "description": "Why nothing was done. Present only when the call failed.",
        "properties": {
            "code": { "type": "string", "description": "A stable code, such as unknown_argument." },
            "message": { "type": "string", "description": "What went wrong and what to do about it." }
        },
        "required": ["code", "message"]
    })
}
