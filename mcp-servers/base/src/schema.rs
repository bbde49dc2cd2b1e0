//! Parts of a tool's description.
//!
//! Input schemas use only what every model provider supports: an object at the root, no references, no combinators, no
//! `const`. Descriptions state further rules ("exactly one of"), and the server enforces them.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// A tool's behavior, for its annotations.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour {
    /// It changes nothing.
    pub read_only: bool,
    /// Its effects cannot be undone.
    pub destructive: bool,
    /// A second equal call changes nothing more.
    pub idempotent: bool,
    /// It reaches systems outside the server's own data.
    pub open_world: bool,
}

/// A tool. A tool that is not read-only supports idempotency keys, and declares it.
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

/// A tool that says more of itself for gavel, by the keys of `tools.NAME` in `mcp.json`. Objects add to what it says.
pub fn with_settings(mut tool: Tool, settings: Value) -> Tool {
    let meta = tool.meta.get_or_insert_default();
    let said = meta.0.entry("gavel/settings").or_insert_with(|| json!({}));
    for (key, value) in settings.as_object().into_iter().flatten() {
        match (said[key].as_object_mut(), value.as_object()) {
            (Some(said), Some(value)) => said.extend(value.clone()),
            _ => said[key] = value.clone(),
        }
    }
    tool
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(schema) => Arc::new(schema),
        _ => Arc::default(),
    }
}

/// A tool's input schema: these arguments and no others.
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

/// A tool's output schema: the result or an error; clients check both against it.
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
