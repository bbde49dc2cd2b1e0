//! Pieces that the tools' schemas share.
//!
//! Input schemas keep to what every model provider takes: an object at the root, no references, no
//! combinators, no `const`. Rules beyond that ("exactly one of") stand in descriptions and are
//! enforced by the server.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::{MAX_DESCRIPTION, MAX_NOTES};

/// How a tool behaves, as its annotations say.
pub(super) struct Behaviour {
    pub(super) read_only: bool,
    pub(super) destructive: bool,
    pub(super) idempotent: bool,
}

pub(super) fn tool(
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
        .open_world(false);
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

pub(super) fn input(properties: Value, required: &[&str]) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.to_vec().into());
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    Value::Object(schema)
}

/// An answer is either the result or an error; clients check both against this schema.
pub(super) fn output(mut properties: Map<String, Value>, required: &[&str]) -> Value {
    properties.insert("error".to_owned(), error());
    json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
        "additionalProperties": false
    })
}

pub(super) fn properties(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
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
            "code": { "type": "string", "description": "A stable code, such as unknown_task." },
            "message": { "type": "string", "description": "What went wrong and what to do about it." }
        },
        "required": ["code", "message"]
    })
}

fn task_properties() -> Map<String, Value> {
    properties([
        ("id", json!({ "type": "string" })),
        ("description", json!({ "type": "string" })),
        ("status", json!({ "type": "string", "enum": ["open", "done"] })),
        (
            "priority",
            json!({ "type": "string", "enum": ["low", "normal", "high"] }),
        ),
        (
            "due",
            json!({ "type": "string", "description": "YYYY-MM-DD, or an RFC 3339 date-time." }),
        ),
        ("notes", json!({ "type": "string" })),
        ("created_at", json!({ "type": "string" })),
        ("updated_at", json!({ "type": "string" })),
        ("completed_at", json!({ "type": "string" })),
    ])
}

const TASK_REQUIRED: [&str; 6] = ["id", "description", "status", "priority", "created_at", "updated_at"];

pub(super) fn task(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "properties": task_properties(),
        "required": TASK_REQUIRED,
        "additionalProperties": false
    })
}

pub(super) fn listed_task() -> Value {
    let mut properties = task_properties();
    properties.insert(
        "position".to_owned(),
        json!({ "type": "integer", "minimum": 1, "description": "The task's number in the list, from 1." }),
    );
    let mut required = TASK_REQUIRED.to_vec();
    required.push("position");
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    })
}

pub(super) fn description(text: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION, "description": text })
}

pub(super) fn priority(text: &str) -> Value {
    json!({ "type": "string", "enum": ["low", "normal", "high"], "description": text })
}

pub(super) fn notes(text: &str) -> Value {
    json!({ "type": "string", "maxLength": MAX_NOTES, "description": text })
}

/// Allows `null` besides what `schema` allows.
pub(super) fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}
