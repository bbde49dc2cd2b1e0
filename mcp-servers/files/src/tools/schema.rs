//! Parts that the tools' schemas share.
//!
//! Input schemas use only what every model provider supports: an object at the root, no references, no combinators.

use gavel_mcp_base::schema::{self, Behaviour};
use rmcp::model::Tool;
use serde_json::{Value, json};

/// A tool that only reads below the root.
pub(super) fn tool(name: &'static str, title: &str, description: &'static str, input: Value, output: Value) -> Tool {
    let reads = Behaviour {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    schema::tool(name, title, description, input, output, reads)
}

pub(super) fn input(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// An answer is either the result or an error; clients check both against this schema.
pub(super) fn output(mut properties: Value, required: &[&str]) -> Value {
    properties["error"] = json!({
        "type": "object",
        "description": "Why nothing was read. Present only when the call failed.",
        "properties": {
            "code": { "type": "string", "description": "A stable code, such as not_found." },
            "message": { "type": "string", "description": "What went wrong and what is allowed." }
        },
        "required": ["code", "message"],
        "additionalProperties": false
    });
    json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
        "additionalProperties": false
    })
}

pub(super) fn directory(what: &str) -> Value {
    json!({ "type": "string", "description": format!(
        "{what}, relative to the folder that is served, without `..`. That folder itself when left out."
    ) })
}

pub(super) fn count(what: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": what })
}

pub(super) fn incomplete() -> Value {
    json!({ "type": "string", "description": "Present when not everything was looked at: why, and what to do." })
}
